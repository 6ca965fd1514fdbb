#include "machine/cuda/daemon.h"

#include "machine/cuda/machine.cuh"

namespace starling::cuda {
namespace {

// One POD argument. The grid is the daemon's block count; a block's state lives in shared memory.
__global__ void __launch_bounds__(kDaemonThreads, 1) daemon_kernel(device::DaemonArguments arguments) {
  __shared__ device::BlockState state;
  CudaMachine machine;
  device::Daemon<CudaMachine> daemon(machine, arguments, state);
  daemon.run();
}

}  // namespace

int launch_daemon(const device::DaemonArguments& arguments, uint32_t blocks, void* stream) {
  daemon_kernel<<<blocks, kDaemonThreads, 0, static_cast<cudaStream_t>(stream)>>>(arguments);
  return int(cudaGetLastError());
}

int preload_daemon() {
  cudaFuncAttributes attributes;
  return int(cudaFuncGetAttributes(&attributes, daemon_kernel));
}

}  // namespace starling::cuda
