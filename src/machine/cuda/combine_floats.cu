#include "machine/cuda/combine.cuh"

namespace starling::cuda {

__device__ void combine_floats(CudaMachine& m, const device::Combine& c) {
  if (c.data_type == DataType::kFloat32) return combine_as<float>(m, c);
  combine_as<double>(m, c);
}

}  // namespace starling::cuda
