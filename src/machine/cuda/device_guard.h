// The calling thread's device and capture mode, and back: callers keep theirs.
#pragma once
#include <cuda_runtime.h>

#include <new>

namespace starling::cuda {

// Relaxed capture mode: what we ask the driver has nothing to do with a graph that a thread captures
// meanwhile, and must not end the capture.
//
// By pushing and popping contexts, not by cudaSetDevice: a thread that has not used CUDA yet, as our poller,
// is on device 0 by default, and to set it back there would make a context on that GPU, which is another
// rank's: seconds for its kernels to be loaded, half a GB of its memory, and time slices for the two.
struct OnlyLaunches {};

class DeviceGuard {
 public:
  explicit DeviceGuard(int device);  // throws Error
  // For launches alone, which end no other thread's capture: without the mode, two calls of the runtime.
  DeviceGuard(int device, OnlyLaunches);
  DeviceGuard(int device, std::nothrow_t) noexcept;  // entered() says
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

  // False: the device has failed, or the process ends.
  bool entered() const { return entered_; }

 private:
  cudaError_t enter(int device);
  cudaError_t enter_context(int device);
  void pop() noexcept;

  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
  bool entered_ = false;
  bool relaxes_ = false;
  bool pushed_ = false;  // false: the thread is there anyway
};

}  // namespace starling::cuda
