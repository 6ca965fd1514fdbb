// The kernel that stays for the CPU's calls (device/call.h): in a file of its own, since it has all of a
// start kernel in it, and takes as long to compile.
#include "device/call.h"
#include "machine/cuda/combine.cuh"
#include "machine/cuda/domain.h"
#include "machine/cuda/driver.h"
#include "machine/cuda/machine.cuh"
#include "machine/cuda/start.h"

namespace starling::cuda {
namespace {

__global__ void __launch_bounds__(kStartThreads, 1)
    call_kernel(const __grid_constant__ device::CallArguments arguments) {
  __shared__ device::CallState state;
  __shared__ CudaMachine::StartStage stage;
  if (arguments.box == nullptr) return;  // StartKernels::preload()
  device::run_calls(CudaMachine(blockDim.x, &stage), arguments, state);
}

}  // namespace

int StartKernels::load_call() {
  return cudaGetFuncBySymbol(&call_, reinterpret_cast<const void*>(call_kernel));
}

int StartKernels::preload_call(void* stream) const { return launch_call({}, stream); }

int StartKernels::launch_call(const device::CallArguments& call, void* stream) const {
  CUlaunchAttribute attributes[kDomainAttributes];
  set_domain(attributes);
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = threads_for(call.unit_bytes);
  config.hStream = static_cast<CUstream>(stream);
  config.attrs = attributes;
  config.numAttrs = domain_attributes_;
  void* arguments[] = {const_cast<device::CallArguments*>(&call)};
  return int(launch_(&config, call_, arguments, nullptr));
}

}  // namespace starling::cuda
