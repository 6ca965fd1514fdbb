// Messages to peers, and what a rank keeps for itself, by the GPU's copy engines: streams of our own, which
// nobody else puts anything into, and into which nothing is put that would wait. Those to peers and those
// within the GPU have a stream each: the one is bound by NVLink, the other by the GPU's memory, and neither
// stands behind the other.
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

  uint64_t copy(device::CopyQueue queue, const CopyTarget& to, const std::byte* from,
                uint64_t bytes) override;
  uint64_t completed(device::CopyQueue queue) override;

 private:
  using WriteValue = CUresult (*)(CUstream, CUdeviceptr, cuuint64_t, unsigned int);
  struct Queue {
    cudaStream_t stream = nullptr;
    uint64_t* ended = nullptr;  // host memory, a line of its own; writer: the stream, behind each copy
    uint64_t given = 0;
  };

  const int device_;
  Place& place_;
  WriteValue write_;
  uint64_t* words_;  // the queues' `ended`
  Queue queues_[device::kCopyQueues];
};

}  // namespace starling::cuda
