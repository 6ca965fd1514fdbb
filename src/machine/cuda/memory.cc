#include "machine/cuda/memory.h"

#include <time.h>

#include <atomic>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/portable.h"
#include "base/quick_mutex.h"
#include "machine/cuda/device_guard.h"
#include "machine/cuda/error.h"
#include "machine/registered/descriptors.h"

namespace starling::cuda {
namespace {

constexpr uint64_t kChunkBytes = uint64_t(256) << 20;
constexpr uint64_t kChunkGrain = uint64_t(2) << 20;  // what the driver maps at a time
constexpr uint64_t kPinnedBytes = uint64_t(1) << 20;
constexpr uint64_t kLeavingNs = 2'000'000'000;  // for peers to unmap what we free

// The chunks of this process by address, for ranks that are threads: their GPUs address them as they are.
struct OwnChunks {
  std::mutex mutex;
  std::map<uint64_t, std::weak_ptr<Chunk>> chunks;
};
OwnChunks& own_chunks() {
  static OwnChunks chunks;
  return chunks;
}

}  // namespace

Chunk::Chunk(int on_device, uint64_t size) : device(on_device), bytes(size) {
  const DeviceGuard guard(device);
  check(cudaMalloc(reinterpret_cast<void**>(&base), bytes), "cudaMalloc of a rank's memory");
}

Chunk::~Chunk() {
  {
    std::lock_guard lock(own_chunks().mutex);
    own_chunks().chunks.erase(uint64_t(base));
  }
  if (keep) return;
  if (const DeviceGuard guard(device, std::nothrow); guard.entered()) cudaFree(base);
}

std::shared_ptr<Chunk> find_chunk(uint64_t address) {
  std::lock_guard lock(own_chunks().mutex);
  const auto found = own_chunks().chunks.find(address);
  return found == own_chunks().chunks.end() ? nullptr : found->second.lock();
}

std::byte* FreeLists::take(uint64_t bytes) {
  const auto found = free_.find(bytes);
  if (found == free_.end()) return nullptr;
  std::byte* piece = found->second;
  free_.erase(found);
  return piece;
}

DeviceMemory::DeviceMemory(int device, cpu::Arena& arena) : device_(device) {
  const uint64_t offset = arena.allocate(sizeof(DeviceExport));
  export_ = reinterpret_cast<DeviceExport*>(arena.at(offset));
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  std::memcpy(export_->uuid, &properties.uuid, sizeof export_->uuid);
  export_->device = uint32_t(device);
  export_->network = network_namespace();
  adopt(new_chunk(kChunkBytes));
  arena.header()->device_offset = offset;
}

// The driver does not protect memory that a peer's kernel may still reach: it is freed when peers have said
// that they are out, or never.
DeviceMemory::~DeviceMemory() {
  std::atomic_ref<uint64_t> importers(export_->importers);
  // Acquire: pairs with the subtraction in ImportedMemory's destructor.
  for (uint64_t waited = 0; waited < kLeavingNs && importers.load(std::memory_order_acquire) > 0;
       waited += 1'000'000) {
    const timespec nap{0, 1'000'000};
    nanosleep(&nap, nullptr);
  }
  const bool keep = importers.load(std::memory_order_acquire) > 0;
  if (keep)
    log(LogLevel::info, "a peer still maps this rank's GPU memory: it is kept until the process ends");
  for (const auto& chunk : chunks_) chunk->keep |= keep;
  for (const auto& slab : slabs_) slab->keep |= keep;
}

std::shared_ptr<Chunk> DeviceMemory::new_chunk(uint64_t bytes) const {
  return std::make_shared<Chunk>(device_, round_up(std::max(bytes, kChunkBytes), kChunkGrain));
}

// Relaxed: a hint.
void DeviceMemory::note_room(uint64_t taken) {
  largest_ = std::max(largest_, taken);
  const uint64_t all = chunks_.back()->bytes;
  const bool low = spare_ == nullptr && all - used_ < std::max(all / 4, largest_);
  low_.store(low && chunks_.size() < kMaxChunks, std::memory_order_relaxed);
}

void DeviceMemory::make_room() {
  if (!low_.load(std::memory_order_relaxed) || !low_.exchange(false, std::memory_order_relaxed)) return;
  uint64_t wanted = 0;
  {
    const std::lock_guard lock(mutex_);
    wanted = std::min(2 * largest_, std::max(kChunkBytes, largest_));
  }
  try {
    keep_spare(new_chunk(wanted));
  } catch (const Error&) {  // who needs it will say so
    (void)cudaGetLastError();
  }
}

void DeviceMemory::keep_spare(std::shared_ptr<Chunk> fresh) {
  const std::lock_guard lock(mutex_);
  if (spare_ == nullptr || spare_->bytes < fresh->bytes) spare_.swap(fresh);
}

// Peers find the chunk.
void DeviceMemory::adopt(std::shared_ptr<Chunk> chunk) {
  STARLING_ASSERT(chunks_.size() < kMaxChunks, "a rank's GPU memory has no entry left");
  const DriverExcuse excuse;  // cudaIpcGetMemHandle stands behind nothing (docs/GPU_PROBE.md)
  const DeviceGuard guard(device_);
  ExportedChunk& entry = export_->chunks[chunks_.size()];
  entry.address = uint64_t(chunk->base);
  entry.bytes = chunk->bytes;
  static_assert(sizeof(cudaIpcMemHandle_t) == sizeof entry.handle);
  check(cudaIpcGetMemHandle(reinterpret_cast<cudaIpcMemHandle_t*>(entry.handle), chunk->base),
        "cudaIpcGetMemHandle");
  {
    std::lock_guard lock(own_chunks().mutex);
    own_chunks().chunks[entry.address] = chunk;
  }
  chunks_.push_back(std::move(chunk));
  used_ = 0;
  // Release: the entry before the count; pairs with the acquire in ImportedMemory::at().
  std::atomic_ref<uint64_t>(export_->chunk_count).store(chunks_.size(), std::memory_order_release);
}

std::byte* DeviceMemory::allocate(uint64_t bytes) {
  bytes = round_up<uint64_t>(std::max<uint64_t>(bytes, 1), 256);
  std::unique_lock lock(mutex_);
  for (;;) {
    if (std::byte* piece = free_.take(bytes)) return piece;
    if (used_ + bytes <= chunks_.back()->bytes) break;
    if (chunks_.size() == kMaxChunks)
      throw Error(Code::exhausted,
                  "a rank's GPU memory has " + std::to_string(kMaxChunks) + " pieces already",
                  "destroy communicators, or use fewer names and tags");
    if (spare_ != nullptr && spare_->bytes >= bytes) {
      adopt(std::exchange(spare_, nullptr));
      continue;
    }
    // The caller has a lock that others need only where one operation takes more than a spare chunk has, or
    // several threads at once as much.
    lock.unlock();
    const DriverExcuse excuse;
    std::shared_ptr<Chunk> fresh = new_chunk(bytes);
    lock.lock();
    adopt(std::move(fresh));
  }
  std::byte* piece = chunks_.back()->base + used_;
  used_ += bytes;
  note_room(bytes);
  return piece;
}

std::byte* DeviceMemory::slab(uint64_t bytes) {
  try {
    auto chunk = std::make_unique<Chunk>(device_, bytes);
    const std::lock_guard lock(mutex_);
    return slabs_.emplace_back(std::move(chunk))->base;
  } catch (const Error&) {
    (void)cudaGetLastError();
  }
  const std::lock_guard lock(mutex_);
  if (used_ + bytes > chunks_.back()->bytes) return nullptr;
  std::byte* piece = chunks_.back()->base + used_;
  used_ += bytes;
  return piece;
}

void DeviceMemory::release(std::byte* memory, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  free_.give(memory, round_up<uint64_t>(std::max<uint64_t>(bytes, 1), 256));
}

uint64_t DeviceMemory::offset_of(const std::byte* memory) const {
  std::lock_guard lock(mutex_);
  for (uint64_t c = 0; c < chunks_.size(); ++c)
    if (memory >= chunks_[c]->base && memory < chunks_[c]->base + chunks_[c]->bytes)
      return c << kChunkShift | uint64_t(memory - chunks_[c]->base);
  STARLING_ASSERT(false, "an address outside of the rank's GPU memory was exported");
  return 0;  // not reached
}

std::byte* DeviceMemory::at(uint64_t offset) const {
  std::lock_guard lock(mutex_);
  return chunks_[offset >> kChunkShift]->base + (offset & ((uint64_t(1) << kChunkShift) - 1));
}

PinnedMemory::~PinnedMemory() {
  const DeviceGuard guard(device_, std::nothrow);
  for (std::byte* piece : pieces_) cudaFreeHost(piece);
  if (spare_ != nullptr) cudaFreeHost(spare_);
}

std::byte* PinnedMemory::new_piece(uint64_t bytes) const {
  const DeviceGuard guard(device_);
  std::byte* fresh = nullptr;
  check(cudaHostAlloc(reinterpret_cast<void**>(&fresh), bytes, cudaHostAllocPortable | cudaHostAllocMapped),
        "cudaHostAlloc");
  return fresh;
}

void PinnedMemory::make_room() {
  // Relaxed: a hint.
  if (!low_.load(std::memory_order_relaxed) || !low_.exchange(false, std::memory_order_relaxed)) return;
  try {
    keep_spare(new_piece(kPinnedBytes), kPinnedBytes);
  } catch (const Error&) {  // who needs it will say so
    (void)cudaGetLastError();
  }
}

void PinnedMemory::keep_spare(std::byte* fresh, uint64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (spare_ == nullptr || spare_bytes_ < bytes) {
      std::swap(spare_, fresh);
      spare_bytes_ = bytes;
    }
  }
  if (fresh == nullptr) return;
  const DeviceGuard guard(device_, std::nothrow);
  cudaFreeHost(fresh);
}

std::byte* PinnedMemory::take(uint64_t bytes) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (std::byte* piece = free_.take(bytes)) return piece;
    if (!pieces_.empty() && used_ + bytes <= last_bytes_) break;
    if (spare_ != nullptr && spare_bytes_ >= bytes) {
      pieces_.push_back(std::exchange(spare_, nullptr));
      last_bytes_ = spare_bytes_;
      used_ = 0;
      continue;
    }
    // As in DeviceMemory::allocate().
    lock.unlock();
    const DriverExcuse excuse;
    const uint64_t size = std::max(bytes, kPinnedBytes);
    std::byte* const fresh = new_piece(size);
    lock.lock();
    pieces_.push_back(fresh);
    last_bytes_ = size;
    used_ = 0;
  }
  std::byte* piece = pieces_.back() + used_;
  used_ += bytes;
  low_.store(spare_ == nullptr && used_ > last_bytes_ / 2, std::memory_order_relaxed);
  return piece;
}

std::byte* PinnedMemory::allocate(uint64_t bytes) {
  bytes = round_up<uint64_t>(std::max<uint64_t>(bytes, 1), 64);
  std::byte* const piece = take(bytes);
  std::memset(piece, 0, bytes);
  return piece;
}

void PinnedMemory::release(std::byte* memory, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  free_.give(memory, round_up<uint64_t>(std::max<uint64_t>(bytes, 1), 64));
}

}  // namespace starling::cuda
