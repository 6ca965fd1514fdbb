#include "machine/cuda/host_copies.h"

#include <algorithm>
#include <cstring>

#include "base/portable.h"
#include "machine/cuda/device_guard.h"
#include "machine/cuda/error.h"
#include "machine/cuda/streams.h"

namespace starling::cuda {
namespace {

constexpr uint64_t kStagingBytes = uint64_t(256) << 10;
constexpr uint32_t kThreads = 512;
constexpr uint32_t kMostBlocks = 32;

// Zeros without `from`. One side is host memory: packs of 16 bytes where both ends are aligned.
__global__ void copy_kernel(std::byte* to, const std::byte* from, uint64_t bytes) {
  const uint64_t first = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const uint64_t stride = uint64_t(gridDim.x) * blockDim.x;
  const bool aligned = (uint64_t(to) | uint64_t(from)) % sizeof(uint4) == 0;
  const uint64_t packs = aligned ? bytes / sizeof(uint4) : 0;
  const uint4 zeros = make_uint4(0, 0, 0, 0);
  for (uint64_t i = first; i < packs; i += stride)
    reinterpret_cast<uint4*>(to)[i] = from == nullptr ? zeros : reinterpret_cast<const uint4*>(from)[i];
  for (uint64_t i = packs * sizeof(uint4) + first; i < bytes; i += stride)
    to[i] = from == nullptr ? std::byte{0} : from[i];
}

}  // namespace

HostCopies::HostCopies(int device) : device_(device) {
  const DeviceGuard guard(device);
  cudaFuncAttributes loaded;
  stream_ = new_stream(device, StreamUse::kCopies);
  check(cudaHostAlloc(reinterpret_cast<void**>(&staging_), kStagingBytes,
                      cudaHostAllocPortable | cudaHostAllocMapped),
        "cudaHostAlloc");
  check(cudaFuncGetAttributes(&loaded, copy_kernel), "loading the copy kernel");
}

HostCopies::~HostCopies() {
  const DeviceGuard guard(device_, std::nothrow);
  if (!guard.entered()) return;
  cudaStreamSynchronize(stream_);
  cudaStreamDestroy(stream_);
  cudaFreeHost(staging_);
}

void HostCopies::write(void* to, const void* from, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  const DeviceGuard guard(device_);
  auto* const target = static_cast<std::byte*>(to);
  auto* const source = static_cast<const std::byte*>(from);
  for (uint64_t done = 0, piece = 0; done < bytes; done += piece) {
    if (used_ == kStagingBytes) wait();
    piece = std::min(bytes - done, kStagingBytes - used_);
    std::memcpy(staging_ + used_, source + done, piece);
    launch(target + done, staging_ + used_, piece);
    used_ = std::min(kStagingBytes, round_up<uint64_t>(used_ + piece, sizeof(uint4)));
  }
}

void HostCopies::zero(void* memory, uint64_t bytes) {
  if (bytes == 0) return;
  std::lock_guard lock(mutex_);
  const DeviceGuard guard(device_);
  launch(memory, nullptr, bytes);
}

void HostCopies::flush() {
  std::unique_lock lock(mutex_);
  const uint64_t wanted = launched_;
  if (arrived_ >= wanted) return;
  lock.unlock();
  {
    const DeviceGuard guard(device_);
    check(cudaStreamSynchronize(stream_), "a copy between the host and the GPU");
  }
  lock.lock();
  arrived_ = std::max(arrived_, wanted);
  if (arrived_ == launched_) used_ = 0;
}

void HostCopies::read(void* to, const void* from, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  const DeviceGuard guard(device_);
  wait();
  for (uint64_t done = 0, piece = 0; done < bytes; done += piece) {
    piece = std::min(bytes - done, kStagingBytes);
    launch(staging_, static_cast<const std::byte*>(from) + done, piece);
    wait();
    std::memcpy(static_cast<std::byte*>(to) + done, staging_, piece);
  }
}

void HostCopies::launch(void* to, const void* from, uint64_t bytes) {
  const auto blocks = uint32_t(std::clamp<uint64_t>(bytes / (kThreads * sizeof(uint4)), 1, kMostBlocks));
  copy_kernel<<<blocks, kThreads, 0, stream_>>>(static_cast<std::byte*>(to),
                                                static_cast<const std::byte*>(from), bytes);
  check(cudaGetLastError(), "a copy to the GPU");
  ++launched_;
}

void HostCopies::wait() {
  check(cudaStreamSynchronize(stream_), "a copy between the host and the GPU");
  used_ = 0;
  arrived_ = launched_;
}

}  // namespace starling::cuda
