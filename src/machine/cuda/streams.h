// The streams that the library makes, and their priorities: which of them share a hardware queue.
#pragma once
#include <cuda_runtime.h>

#include <algorithm>

#include "machine/cuda/device_guard.h"
#include "machine/cuda/error.h"

namespace starling::cuda {

// From the most urgent on. Streams of one high priority share a hardware queue. The daemon's is alone in its
// own, or its launch would stand behind a stream that waits for it; and so is that of the host's copies,
// which a launch may have to wait for. PyTorch's own streams take the four least urgent levels of the H200's
// six, mostly the last two.
enum class StreamUse { kDaemon = 0, kCopies = 1, kUrgent = 2, kOrdinary };

inline cudaStream_t new_stream(int device, StreamUse use) {
  const DeviceGuard guard(device);
  int least = 0;
  int greatest = 0;
  cudaStream_t stream = nullptr;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  const int priority = use == StreamUse::kOrdinary ? least : std::min(greatest + int(use), least);
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority), "cudaStreamCreate");
  return stream;
}

}  // namespace starling::cuda
