// Copies between the host's memory and the GPU's, which nothing of the program can hold up: by a small
// kernel, in a stream of the daemon's priority.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <mutex>

namespace starling::cuda {

// The driver's own copies stand where a copy of any other stream stands: FSDP2's two ranks stood in the
// upload of a new plan, behind streams that waited for operations, and held a lock without which those could
// not go on. Streams of another priority have a hardware queue of their own (docs/GPU_PROBE.md), and a kernel
// needs no copy engine. All methods: any thread.
class HostCopies {
 public:
  explicit HostCopies(int device);  // throws Error
  ~HostCopies();
  HostCopies(const HostCopies&) = delete;
  HostCopies& operator=(const HostCopies&) = delete;

  // Asynchronous, in order; `from` may be reused at once. flush() waits.
  void write(void* to, const void* from, uint64_t bytes);
  void zero(void* memory, uint64_t bytes);

  // Everything written before is in the GPU's memory. Returns at once if nothing is under way. Others may
  // write meanwhile.
  void flush();

  // After all that was written before.
  void read(void* to, const void* from, uint64_t bytes);

 private:
  void launch(void* to, const void* from, uint64_t bytes);
  void wait();

  const int device_;
  std::mutex mutex_;  // guards all below
  cudaStream_t stream_ = nullptr;
  std::byte* staging_ = nullptr;  // pinned; [0, used_) is read by kernels under way
  uint64_t used_ = 0;
  uint64_t launched_ = 0;  // kernels
  uint64_t arrived_ = 0;  // so many of them are known to be over
};

}  // namespace starling::cuda
