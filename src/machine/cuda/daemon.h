// Launching the daemon kernel. Callable from host code that is not compiled by nvcc.
#pragma once
#include "device/daemon.h"

namespace starling::cuda {

// With the one warp more that is the relay (relay.cuh) 16 warps: 128 registers a thread.
inline constexpr uint32_t kDaemonThreads = 480;

// One POD argument of the kernel.
struct DaemonLaunch {
  device::DaemonArguments daemon;
  SubmissionRing submissions;  // the host's
  uint64_t* relayed;  // GPU memory: entries that the relay has passed on, by the relay; 1: somebody relays
  // Of the kernels that begin residencies, or of helpers'.
  uint64_t* blocks_left;  // GPU memory: blocks of all of them that have left; writers: blocks, atomically
  uint64_t leave_at;  // blocks_left when this one's last block has left
  uint64_t number;  // of this one
  uint64_t* left;  // host memory: number of the last one that is over; writer: its last block. Null: a watch
  const uint64_t* drain;  // host memory: that kernel, and those before it, are to end; the relay passes it on
  uint64_t* watches;  // GPU memory: watches that came before their streams might go on; and that have left
  uint64_t*
      begun;  // host memory: number of the last one that has begun; writer: its first block. Null: as above
};

// Asynchronous: the kernel runs until it quits (device/daemon.h). `stream` is a cudaStream_t that is not
// blocking. Returns a cudaError_t; 0 is success.
int launch_daemon(const DaemonLaunch& launch, uint32_t blocks, void* stream);

// A kernel of one thread, which finds room on a full GPU too: *begun := launch, in the host's memory.
int launch_herald(uint64_t* begun, uint64_t launch, void* stream);

// Runs the kernel once with nothing to do: the first launch of a kernel that needs more local memory than any
// before waits until the whole GPU is idle.
int preload_daemon(void* stream);

}  // namespace starling::cuda
