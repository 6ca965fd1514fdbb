#include "machine/cuda/combine.cuh"

namespace starling::cuda {

__device__ void combine_ints(CudaMachine m, const device::Combine& c, const KeptUnit* kept) {
  if (c.data_type == DataType::kInt32) return combine_as<int32_t>(m, c, kept);
  combine_as<uint32_t>(m, c, kept);
}

}  // namespace starling::cuda
