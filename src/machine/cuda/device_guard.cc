#include "machine/cuda/device_guard.h"

#include <cuda.h>

#include <array>
#include <atomic>

#include "base/assert.h"
#include "base/env.h"
#include "base/log.h"
#include "base/quick_mutex.h"
#include "machine/cuda/driver.h"
#include "machine/cuda/error.h"

namespace starling::cuda {
namespace {

struct ContextFunctions {
  CUresult (*push)(CUcontext) = driver_function<CUresult (*)(CUcontext)>("cuCtxPushCurrent");
  CUresult (*current)(CUcontext*) = driver_function<CUresult (*)(CUcontext*)>("cuCtxGetCurrent");
  CUresult (*pop)(CUcontext*) = driver_function<CUresult (*)(CUcontext*)>("cuCtxPopCurrent");
  CUresult (*retain)(CUcontext*, CUdevice) =
      driver_function<CUresult (*)(CUcontext*, CUdevice)>("cuDevicePrimaryCtxRetain");
};

const ContextFunctions& functions() {
  static const ContextFunctions found;
  return found;
}

constexpr int kMostDevices = 64;

// The one that the CUDA runtime, and PyTorch, use too. Kept until the process ends. Null: `why`.
CUcontext primary_context(int device, CUresult& why) {
  static std::array<std::atomic<CUcontext>, kMostDevices> contexts;
  why = CUDA_ERROR_INVALID_DEVICE;
  if (device < 0 || device >= kMostDevices) return nullptr;
  // Relaxed: a handle of the driver's, which is the same for all. Two that come first retain it twice.
  CUcontext context = contexts[size_t(device)].load(std::memory_order_relaxed);
  if (context != nullptr) return context;
  why = functions().retain(&context, device);
  if (why != CUDA_SUCCESS) return nullptr;
  contexts[size_t(device)].store(context, std::memory_order_relaxed);
  return context;
}

// Where nobody may stand in the driver: told once, and the end of a program that asks for that
// (STARLING_STRICT).
void tell_of_broken_rule() {
  static std::atomic<bool> told{false};
  STARLING_ASSERT(!settings().strict, "the driver is called under a lock that whom it waits for may need");
  if (!told.exchange(true))
    log(LogLevel::warn,
        "a bug of starling: the driver is called under a lock, and may stand behind a call of the program's; "
        "please report it, with STARLING_STRICT=1 there is a stack");
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

DeviceGuard::DeviceGuard(int device, OnlyLaunches) {
  check(enter_context(device), "entering the GPU's context");
  entered_ = true;
}

cudaError_t DeviceGuard::enter(int device) {
  if (const cudaError_t status = enter_context(device); status != cudaSuccess) return status;
  if (const cudaError_t status = cudaThreadExchangeStreamCaptureMode(&mode_); status != cudaSuccess) {
    pop();
    return status;
  }
  entered_ = relaxes_ = true;
  return cudaSuccess;
}

cudaError_t DeviceGuard::enter_context(int device) {
  if (DriverRule::forbids()) tell_of_broken_rule();
  CUresult why;
  const CUcontext context = primary_context(device, why);
  if (context == nullptr) return cudaError_t(why);  // their numbers are the same
  CUcontext current = nullptr;
  pushed_ = functions().current(&current) != CUDA_SUCCESS || current != context;
  if (!pushed_) return cudaSuccess;
  why = functions().push(context);
  pushed_ = why == CUDA_SUCCESS;
  return cudaError_t(why);
}

DeviceGuard::~DeviceGuard() {
  if (!entered_) return;
  if (relaxes_) cudaThreadExchangeStreamCaptureMode(&mode_);
  pop();
}

void DeviceGuard::pop() noexcept {
  if (!pushed_) return;
  CUcontext popped = nullptr;
  functions().pop(&popped);
}

}  // namespace starling::cuda
