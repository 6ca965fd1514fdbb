#include "machine/cuda/copy_engine.h"

#include <atomic>

#include "machine/cuda/device_guard.h"
#include "machine/cuda/driver.h"
#include "machine/cuda/error.h"
#include "machine/cuda/streams.h"

namespace starling::cuda {

CudaCopyEngine::CudaCopyEngine(int device, Place& place)
    : device_(device),
      place_(place),
      write_(driver_function<WriteValue>("cuStreamWriteValue64")),
      // Copies of other streams of one priority would stand before ours, behind what their streams wait for.
      stream_(new_stream(device, StreamUse::kCopies)),
      ended_(reinterpret_cast<uint64_t*>(place.allocate_shared(sizeof(uint64_t)))) {}

CudaCopyEngine::~CudaCopyEngine() {
  if (const DeviceGuard guard(device_, std::nothrow); guard.entered()) {
    // Copies alone are in it: they end by themselves.
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }
  place_.release_shared(reinterpret_cast<std::byte*>(ended_), sizeof(uint64_t));
}

uint64_t CudaCopyEngine::copy(const CopyTarget& to, const std::byte* from, uint64_t bytes) {
  const DeviceGuard guard(device_);
  check(cudaMemcpyAsync(to.address, from, bytes, cudaMemcpyDefault, stream_), "a copy to a peer's GPU");
  // With its barrier: all of the copy before the word, for whoever acquires it.
  if (write_(stream_, CUdeviceptr(ended_), ++given_, CU_STREAM_WRITE_VALUE_DEFAULT) != CUDA_SUCCESS)
    throw Error(Code::system, "a mark could not be put behind a copy to a peer's GPU",
                "see the driver's log (nvidia-smi, dmesg)");
  return given_;
}

// Acquire: pairs with the stream's write; the copies before it have ended.
uint64_t CudaCopyEngine::completed() {
  return std::atomic_ref<uint64_t>(*ended_).load(std::memory_order_acquire);
}

}  // namespace starling::cuda
