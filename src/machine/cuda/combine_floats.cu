#include "machine/cuda/combine.cuh"

namespace starling::cuda {

__device__ void combine_floats(CudaMachine m, const device::Combine& c, const KeptUnit* kept) {
  if (c.data_type == DataType::kFloat32) return combine_as<float>(m, c, kept);
  combine_as<double>(m, c, kept);
}

}  // namespace starling::cuda
