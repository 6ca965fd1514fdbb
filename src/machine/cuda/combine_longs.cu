#include "machine/cuda/combine.cuh"

namespace starling::cuda {

__device__ void combine_longs(CudaMachine m, const device::Combine& c, const KeptUnit* kept) {
  if (c.data_type == DataType::kInt64) return combine_as<int64_t>(m, c, kept);
  combine_as<uint64_t>(m, c, kept);
}

}  // namespace starling::cuda
