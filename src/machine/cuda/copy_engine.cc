#include "machine/cuda/copy_engine.h"

#include <atomic>

#include "machine/cuda/device_guard.h"
#include "machine/cuda/driver.h"
#include "machine/cuda/error.h"
#include "machine/cuda/streams.h"

namespace starling::cuda {
namespace {

constexpr size_t kLineWords = 64 / sizeof(uint64_t);

// Copies of other streams of one priority would stand before those to peers, behind what their streams wait
// for. Streams of a high priority share a hardware queue, in which the two would stand behind each other.
StreamUse use_of(size_t queue) {
  return device::CopyQueue(queue) == device::CopyQueue::kPeers ? StreamUse::kCopies : StreamUse::kUrgent;
}

}  // namespace

CudaCopyEngine::CudaCopyEngine(int device, Place& place)
    : device_(device),
      place_(place),
      write_(driver_function<WriteValue>("cuStreamWriteValue64")),
      words_(reinterpret_cast<uint64_t*>(
          place.allocate_shared(device::kCopyQueues * kLineWords * sizeof(uint64_t)))) {
  for (size_t q = 0; q < device::kCopyQueues; ++q)
    queues_[q] = {new_stream(device, use_of(q)), words_ + q * kLineWords};
}

CudaCopyEngine::~CudaCopyEngine() {
  if (const DeviceGuard guard(device_, std::nothrow); guard.entered()) {
    // Copies alone are in it: they end by themselves.
    for (const Queue& queue : queues_) {
      cudaStreamSynchronize(queue.stream);
      cudaStreamDestroy(queue.stream);
    }
  }
  place_.release_shared(reinterpret_cast<std::byte*>(words_),
                        device::kCopyQueues * kLineWords * sizeof(uint64_t));
}

uint64_t CudaCopyEngine::copy(device::CopyQueue number, const CopyTarget& to, const std::byte* from,
                              uint64_t bytes) {
  Queue& queue = queues_[size_t(number)];
  const DeviceGuard guard(device_);
  check(cudaMemcpyAsync(to.address, from, bytes, cudaMemcpyDefault, queue.stream), "a copy to a peer's GPU");
  // With its barrier: all of the copy before the word, for whoever acquires it.
  if (write_(queue.stream, CUdeviceptr(queue.ended), queue.given + 1, CU_STREAM_WRITE_VALUE_DEFAULT) !=
      CUDA_SUCCESS) {
    cudaStreamSynchronize(queue.stream);  // nobody would hear of its end
    throw Error(Code::system, "a mark could not be put behind a copy to a peer's GPU",
                "see the driver's log (nvidia-smi, dmesg)");
  }
  return ++queue.given;
}

// Acquire: pairs with the stream's write; the copies before it have ended.
uint64_t CudaCopyEngine::completed(device::CopyQueue queue) {
  return std::atomic_ref<uint64_t>(*queues_[size_t(queue)].ended).load(std::memory_order_acquire);
}

}  // namespace starling::cuda
