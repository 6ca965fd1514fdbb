// Errors of the CUDA runtime as Starling's.
#pragma once
#include <cuda_runtime.h>

#include <string>

#include "base/error.h"

namespace starling::cuda {

inline void check(cudaError_t status, const char* what,
                  std::source_location where = std::source_location::current()) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();  // it is told now
  const bool memory = status == cudaErrorMemoryAllocation;
  throw Error(
      memory ? Code::exhausted : Code::system, std::string(what) + " failed: " + cudaGetErrorString(status),
      memory ? "free GPU memory, or make contexts before the program takes it all"
             : "see the driver's log (nvidia-smi, dmesg); a kernel's earlier error ends every later call",
      where);
}

// The calling thread's device and capture mode, and back: callers keep theirs. Relaxed: what we ask the
// driver has nothing to do with a graph that a thread captures meanwhile, and must not end the capture.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    check(cudaThreadExchangeStreamCaptureMode(&mode_), "cudaThreadExchangeStreamCaptureMode");
    check(cudaGetDevice(&before_), "cudaGetDevice");
    if (before_ == device) return;
    check(cudaSetDevice(device), "cudaSetDevice");
    changed_ = true;
  }
  ~DeviceGuard() {
    if (changed_) cudaSetDevice(before_);
    cudaThreadExchangeStreamCaptureMode(&mode_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace starling::cuda
