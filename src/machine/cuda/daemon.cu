#include "machine/cuda/daemon.h"

#include "device/daemon_block.h"
#include "machine/cuda/combine.cuh"
#include "machine/cuda/domain.h"
#include "machine/cuda/machine.cuh"
#include "machine/cuda/relay.cuh"

namespace starling::cuda {
namespace {

constexpr uint32_t kRelayThreads = 32;

// The relay's warp and the leader's meet: after it the relay writes nothing any more.
__device__ void meet_relay() { asm volatile("bar.sync 2, 64;" ::: "memory"); }

// Of a block that has left. The last one tells the host.
__device__ void report_leaving(CudaMachine& machine, const DaemonLaunch& launch) {
  if (launch.left == nullptr) return;
  // Acquire and release: the last block has what all blocks wrote, and hands it to the host.
  if (machine.fetch_add(launch.blocks_left, 1) + 1 != launch.leave_at) return;
  // Where guard and helpers leave at one time the host may get an older head: it launches once more.
  const DaemonMemory& daemon = *launch.daemon.daemon;
  const uint64_t* heads = daemon.submissions.heads;
  for (uint32_t b = 0; b < daemon.block_count; ++b) {
    const uint64_t at = b * SubmissionRing::kHeadStride;
    // Acquire and release, as the relay's: what those slots said was read before the host writes them again.
    machine.store_release(&launch.submissions.heads[at], machine.load_acquire(&heads[at]));
  }
  // Release: pairs with the acquires in CudaStreamDevice::last_left() and helpers_left().
  machine.store_release(launch.left, launch.number);
}

// Of a watch, by all threads. False: its stream goes on; then nothing else is touched, since the context may
// be gone.
__device__ bool begins(CudaMachine& machine, const DaemonLaunch& launch) {
  const bool waits = threadIdx.x == 0 && !device::is_released(machine, launch.daemon);
  if (waits) machine.fetch_add(launch.watches, 1);
  return __syncthreads_or(waits) != 0;
}

// The grid is the daemon's block count, the guard, its helpers, or a watch; a block's state lives in shared
// memory.
__global__ void __launch_bounds__(kDaemonThreads + kRelayThreads, 1) daemon_kernel(DaemonLaunch launch) {
  __shared__ device::BlockState state;
  __shared__ uint32_t leaving;
  __shared__ CudaMachine::DaemonStage stages[device::kActiveSlots];
  if (launch.daemon.daemon == nullptr) return;  // preload_daemon()
  DaemonMachine machine(kDaemonThreads, stages, launch.daemon.first);
  const bool watches = device::watches(launch.daemon);
  if (watches && !begins(machine, launch)) return;
  const bool relays = launch.daemon.tenured != 0 || (blockIdx.x == 0 && !device::helps(launch.daemon));
  if (threadIdx.x == 0) leaving = 0;
  // Release: nothing hangs on it; pairs with CudaStreamDevice::daemon_begun().
  if (threadIdx.x == 0 && blockIdx.x == 0 && launch.begun != nullptr)
    machine.store_release(launch.begun, launch.number);
  __syncthreads();
  if (threadIdx.x >= kDaemonThreads) {
    if (!relays) return;
    Relay(machine, launch).run(leaving);
    meet_relay();
    return;
  }
  device::run_daemon(machine, launch.daemon, state);
  if (threadIdx.x >= 32) return;
  if (relays) {
    if (threadIdx.x == 0) atomicExch(&leaving, 1);
    __syncwarp();
    meet_relay();
  }
  if (threadIdx.x != 0) return;
  report_leaving(machine, launch);
  // Acquire and release: all that the block has done comes before; pairs with the copy in await_watches().
  if (watches) machine.fetch_add(launch.watches + 1, 1);
}

__global__ void herald_kernel(uint64_t* begun, uint64_t launch) {
  // Release: nothing hangs on it; pairs with CudaStreamDevice::daemon_come().
  CudaMachine(1).store_release(begun, launch);
}

}  // namespace

int launch_daemon(const DaemonLaunch& launch, uint32_t blocks, void* stream) {
  return int(launch_kernel(daemon_kernel, blocks, kDaemonThreads + kRelayThreads, stream, launch));
}

int launch_herald(uint64_t* begun, uint64_t launch, void* stream) {
  return int(launch_kernel(herald_kernel, 1, 1, stream, begun, launch));
}

int preload_daemon(void* stream) {
  cudaFuncAttributes attributes;
  if (const cudaError_t status = cudaFuncGetAttributes(&attributes, herald_kernel)) return int(status);
  return launch_daemon({}, 1, stream);
}

}  // namespace starling::cuda
