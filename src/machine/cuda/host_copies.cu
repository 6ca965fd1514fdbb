#include "machine/cuda/host_copies.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/portable.h"
#include "machine/cuda/device_guard.h"
#include "machine/cuda/domain.h"
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

HostCopies::HostCopies(int device) : device_(device), thread_("st-host-copies", {[this] { move(); }}) {
  const DeviceGuard guard(device);
  cudaFuncAttributes loaded;
  stream_ = new_stream(device, StreamUse::kCopies);
  check(cudaHostAlloc(reinterpret_cast<void**>(&staging_), kStagingBytes,
                      cudaHostAllocPortable | cudaHostAllocMapped),
        "cudaHostAlloc");
  check(cudaFuncGetAttributes(&loaded, copy_kernel), "loading the copy kernel");
}

HostCopies::~HostCopies() {
  thread_.stop();
  const DeviceGuard guard(device_, std::nothrow);
  if (!guard.entered()) return;
  cudaStreamSynchronize(stream_);
  cudaStreamDestroy(stream_);
  cudaFreeHost(staging_);
}

// ---- who asks -----------------------------------------------------------------------------------------

void HostCopies::write(void* to, const void* from, uint64_t bytes) {
  auto* const source = static_cast<const std::byte*>(from);
  for (uint64_t done = 0, piece = 0; done < bytes; done += piece) {
    piece = std::min(bytes - done, kStagingBytes);
    auto data = std::make_unique_for_overwrite<std::byte[]>(piece);
    std::memcpy(data.get(), source + done, piece);
    ask({static_cast<std::byte*>(to) + done, std::move(data), piece, nullptr, nullptr});
  }
}

void HostCopies::zero(void* memory, uint64_t bytes) {
  if (bytes > 0) ask({static_cast<std::byte*>(memory), nullptr, bytes, nullptr, nullptr});
}

std::shared_ptr<const PendingRead> HostCopies::begin_read(const void* from, uint64_t bytes) {
  auto reading = std::make_shared<PendingRead>(bytes);
  ask({nullptr, nullptr, bytes, reading, static_cast<const std::byte*>(from)});
  return reading;
}

void HostCopies::ask(Copy&& copy) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) {
      if (copy.reading != nullptr) copy.reading->fail();
      return;
    }
    copies_.push_back(std::move(copy));
    asked_.fetch_add(1, std::memory_order_relaxed);
  }
  thread_.call(0);
}

void HostCopies::flush() { await(asked()); }

void HostCopies::await(uint64_t number) {
  if (arrived() >= number && !failed_.load(std::memory_order_relaxed)) return;
  std::unique_lock lock(mutex_);
  moved_.wait(lock, [&] { return arrived() >= number || !failure_.empty(); });
  if (!failure_.empty()) throw Error(Code::system, failure_, "see the driver's log (nvidia-smi, dmesg)");
}

std::string HostCopies::failure() {
  if (!failed_.load(std::memory_order_relaxed)) return "";
  const std::lock_guard lock(mutex_);
  return failure_;
}

void HostCopies::read(void* to, const void* from, uint64_t bytes) {
  const std::shared_ptr<const PendingRead> reading = begin_read(from, bytes);
  flush();
  std::memcpy(to, reading->bytes().data(), bytes);
}

// ---- the thread ---------------------------------------------------------------------------------------

void HostCopies::move() {
  std::string failure;
  try {
    const DeviceGuard guard(device_);
    while (move_some()) {}
    return;
  } catch (const std::exception& error) {
    failure = error.what();
  }
  {
    const std::lock_guard lock(mutex_);
    failure_ = failure;
    for (const Copy& copy : copies_)
      if (copy.reading != nullptr) copy.reading->fail();
    copies_.clear();
    failed_.store(true, std::memory_order_relaxed);
  }
  moved_.notify_all();
}

// False: there was nothing to move.
bool HostCopies::move_some() {
  std::deque<Copy> some;
  {
    const std::lock_guard lock(mutex_);
    some.swap(copies_);
  }
  if (some.empty()) return false;
  try {
    for (const Copy& copy : some) move_one(copy);
    finish();
  } catch (...) {
    for (const Copy& copy : some)
      if (copy.reading != nullptr && !copy.reading->ended()) copy.reading->fail();
    throw;
  }
  {
    const std::lock_guard lock(mutex_);
    // Release: pairs with the acquire in arrived(). The kernels are over.
    arrived_.store(arrived_.load(std::memory_order_relaxed) + some.size(), std::memory_order_release);
  }
  moved_.notify_all();
  return true;
}

void HostCopies::move_one(const Copy& copy) {
  if (copy.reading != nullptr) return read_now(*copy.reading, copy.from);
  if (copy.data == nullptr) return launch(copy.to, nullptr, copy.bytes);
  std::byte* const staged = stage(copy.bytes);
  std::memcpy(staged, copy.data.get(), copy.bytes);
  launch(copy.to, staged, copy.bytes);
}

void HostCopies::read_now(PendingRead& reading, const std::byte* from) {
  const std::span<std::byte> to = reading.to_fill();
  for (uint64_t done = 0, piece = 0; done < to.size(); done += piece) {
    finish();
    piece = std::min(to.size() - done, kStagingBytes);
    launch(staging_, from + done, piece);
    finish();
    std::memcpy(to.data() + done, staging_, piece);
  }
  reading.end();
}

std::byte* HostCopies::stage(uint64_t bytes) {
  if (used_ + bytes > kStagingBytes) finish();
  std::byte* const staged = staging_ + used_;
  used_ = std::min(kStagingBytes, round_up<uint64_t>(used_ + bytes, sizeof(uint4)));
  return staged;
}

void HostCopies::launch(void* to, const void* from, uint64_t bytes) {
  const auto blocks = uint32_t(std::clamp<uint64_t>(bytes / (kThreads * sizeof(uint4)), 1, kMostBlocks));
  check(launch_kernel(copy_kernel, blocks, kThreads, stream_, static_cast<std::byte*>(to),
                      static_cast<const std::byte*>(from), bytes),
        "a copy to the GPU");
}

void HostCopies::finish() {
  check(cudaStreamSynchronize(stream_), "a copy between the host and the GPU");
  used_ = 0;
}

}  // namespace starling::cuda
