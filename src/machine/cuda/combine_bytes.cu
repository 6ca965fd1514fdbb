#include "machine/cuda/combine.cuh"

namespace starling::cuda {

__device__ void combine_bytes(CudaMachine m, const device::Combine& c, const KeptUnit* kept) {
  if (c.data_type == DataType::kInt8) return combine_as<int8_t>(m, c, kept);
  if (c.data_type == DataType::kUint8) return combine_as<uint8_t>(m, c, kept);
  combine_as<device::Bool>(m, c, kept);
}

}  // namespace starling::cuda
