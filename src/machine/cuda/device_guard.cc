#include "machine/cuda/device_guard.h"

#include <cuda.h>

#include <map>
#include <mutex>

#include "machine/cuda/driver.h"
#include "machine/cuda/error.h"

namespace starling::cuda {
namespace {

struct ContextFunctions {
  CUresult (*push)(CUcontext) = driver_function<CUresult (*)(CUcontext)>("cuCtxPushCurrent");
  CUresult (*pop)(CUcontext*) = driver_function<CUresult (*)(CUcontext*)>("cuCtxPopCurrent");
  CUresult (*retain)(CUcontext*, CUdevice) =
      driver_function<CUresult (*)(CUcontext*, CUdevice)>("cuDevicePrimaryCtxRetain");
};

const ContextFunctions& functions() {
  static const ContextFunctions found;
  return found;
}

// The one that the CUDA runtime, and PyTorch, use too. Kept until the process ends.
CUcontext primary_context(int device) {
  static std::mutex mutex;
  static std::map<int, CUcontext> contexts;
  std::lock_guard lock(mutex);
  CUcontext& context = contexts[device];
  if (context == nullptr && functions().retain(&context, device) != CUDA_SUCCESS) context = nullptr;
  return context;
}

}  // namespace

DeviceGuard::DeviceGuard(int device) { check(enter(device), "entering the GPU's context"); }

DeviceGuard::DeviceGuard(int device, std::nothrow_t) noexcept {
  try {
    if (enter(device) != cudaSuccess) (void)cudaGetLastError();
  } catch (const Error&) {
    // No driver any more.
  }
}

cudaError_t DeviceGuard::enter(int device) {
  const CUcontext context = primary_context(device);
  if (context == nullptr || functions().push(context) != CUDA_SUCCESS) return cudaErrorDeviceUninitialized;
  if (const cudaError_t status = cudaThreadExchangeStreamCaptureMode(&mode_); status != cudaSuccess) {
    CUcontext popped = nullptr;
    functions().pop(&popped);
    return status;
  }
  entered_ = true;
  return cudaSuccess;
}

DeviceGuard::~DeviceGuard() {
  if (!entered_) return;
  cudaThreadExchangeStreamCaptureMode(&mode_);
  CUcontext popped = nullptr;
  functions().pop(&popped);
}

}  // namespace starling::cuda
