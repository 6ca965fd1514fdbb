// Messages to peers by the GPU's copy engine: a stream of our own, which nobody else puts anything into, and
// into which nothing is put that would wait.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include "machine/place.h"

namespace starling::cuda {

class CudaCopyEngine final : public CopyEngine {
 public:
  // Throws Error. `place` outlives it.
  CudaCopyEngine(int device, Place& place);
  ~CudaCopyEngine() override;
  CudaCopyEngine(const CudaCopyEngine&) = delete;
  CudaCopyEngine& operator=(const CudaCopyEngine&) = delete;

  uint64_t copy(const CopyTarget& to, const std::byte* from, uint64_t bytes) override;
  uint64_t completed() override;

 private:
  using WriteValue = CUresult (*)(CUstream, CUdeviceptr, cuuint64_t, unsigned int);

  const int device_;
  Place& place_;
  WriteValue write_;
  cudaStream_t stream_;
  uint64_t* ended_;  // host memory; writer: the stream, behind each copy
  uint64_t given_ = 0;
};

}  // namespace starling::cuda
