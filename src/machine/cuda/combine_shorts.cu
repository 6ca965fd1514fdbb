#include "machine/cuda/combine.cuh"

namespace starling::cuda {

__device__ void combine_shorts(CudaMachine m, const device::Combine& c, const KeptUnit* kept) {
  if (c.data_type == DataType::kInt16) return combine_as<int16_t>(m, c, kept);
  combine_as<uint16_t>(m, c, kept);
}

}  // namespace starling::cuda
