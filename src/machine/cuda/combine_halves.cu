#include "machine/cuda/combine.cuh"

namespace starling::cuda {

__device__ void combine_halves(CudaMachine m, const device::Combine& c, const KeptUnit* kept) {
  if (c.data_type == DataType::kFloat16) return combine_as<device::Float16>(m, c, kept);
  combine_as<device::Bfloat16>(m, c, kept);
}

}  // namespace starling::cuda
