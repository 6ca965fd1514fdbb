// Launching start kernels, and gates of captured operations. Callable from host code that is not compiled by
// nvcc.
#pragma once
#include <cuda.h>

#include "device/gate.h"
#include "device/start.h"
#include "wire/pack.h"

namespace starling::device {
struct CallArguments;
}

namespace starling::cuda {

inline constexpr uint32_t kStartThreads = 512;
inline constexpr uint32_t kFewestThreads = 64;

// A pack of 16 bytes a thread and tile; small operations spare the barriers of more warps.
inline uint32_t threads_for(uint64_t bytes) {
  const uint64_t wanted = (ceil_div<uint64_t>(bytes, sizeof(Pack)) + 31) / 32 * 32;
  if (wanted < kFewestThreads) return kFewestThreads;
  return wanted < kStartThreads ? uint32_t(wanted) : kStartThreads;
}

// The start kernels of one GPU, launched by the driver's own function: by the runtime's a launch takes its
// caller 0.4 us more of 3.5 (docs/design/0007-start-as-a-kernel.md). Returned is a cudaError_t, whose values
// are the driver's; 0 is success.
class StartKernels {
 public:
  // With the GPU's context current, as for all that follows.
  int load();
  // Runs those once that have a stack, with nothing to do (daemon.h says why).
  int preload(void* stream) const;

  // One kernel for `count` operations, device::kMostTogether at most. Asynchronous. `stream` is any stream of
  // the device; the arguments are copied.
  int launch(const device::StartArguments* const* starts, uint32_t count, void* stream) const;
  // Likewise one that stays for the CPU's calls.
  int launch_call(const device::CallArguments& call, void* stream) const;

 private:
  using Launch = CUresult (*)(const CUlaunchConfig*, CUfunction, void**, void**);

  // Of the kernel that stays (call.cu).
  int load_call();
  int preload_call(void* stream) const;
  CUfunction kernel_of_two(const device::StartArguments* const* starts) const;
  template <uint32_t kMost>
  int launch_together(CUfunction function, const CUlaunchConfig& config,
                      const device::StartArguments* const* starts, uint32_t count) const;

  Launch launch_ = nullptr;
  uint32_t domain_attributes_ = 0;  // of the GPU (domain.h)
  CUfunction ways_[uint32_t(device::StartWay::kPullsOnce) + 1] = {};
  CUfunction two_ = nullptr, two_of_packets_ = nullptr, two_once_ = nullptr, most_ = nullptr, call_ = nullptr;
};

// Asynchronous, into any stream of the device; the argument is copied.
int launch_gate(const device::GateArguments& gate, void* stream);

}  // namespace starling::cuda
