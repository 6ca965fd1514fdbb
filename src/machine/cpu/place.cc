#include "machine/cpu/place.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "base/assert.h"
#include "base/error.h"
#include "machine/cpu/executor.h"
#include "machine/cpu/process_memory.h"
#include "machine/cpu/process_nonce.h"

namespace starling::cpu {
namespace {

constexpr uint64_t kPoolShare = 8;  // a pool takes so small a part of what is free in /dev/shm

class ArenaMemory final : public PeerMemory {
 public:
  explicit ArenaMemory(std::shared_ptr<PeerArena> arena) : arena_(std::move(arena)) {}
  std::byte* at(uint64_t offset) override { return arena_->at(offset); }
  std::optional<CopyTarget> reach(uint64_t address, uint16_t) override {
    const ArenaHeader* owner = arena_->header();
    return CopyTarget{reinterpret_cast<std::byte*>(address),
                      owner->process_nonce == process_nonce() ? 0 : owner->pid};
  }

 private:
  std::shared_ptr<PeerArena> arena_;
};

// What a copy engine is on a GPU: here the thread that asks for a copy makes it.
class ThreadCopies final : public CopyEngine {
 public:
  uint64_t copy(device::CopyQueue queue, const CopyTarget& to, const std::byte* from,
                uint64_t bytes) override {
    if (to.process == 0)
      std::memcpy(to.address, from, bytes);
    else if (!write_process(to.process, to.address, from, bytes))
      return 0;  // its death is noticed elsewhere
    return ++copies_[size_t(queue)];
  }
  uint64_t completed(device::CopyQueue queue) override { return copies_[size_t(queue)]; }

 private:
  uint64_t copies_[device::kCopyQueues] = {};
};

}  // namespace

const PlaceTraits& CpuPlace::traits() const {
  static constexpr PlaceTraits kTraits{.direct = true,
                                       .notifies = true,
                                       .streams = false,
                                       .lane_depth = kLaneDepth,
                                       .default_blocks = 1,
                                       .lane_limit = kMaxLanes,
                                       .slot_bytes_limit = 1 << 16,
                                       .packet_bytes_limit = 256,
                                       .pull_bytes = 1 << 18,
                                       .trace_capacity = 16384};
  return kTraits;
}

std::byte* CpuPlace::allocate(uint64_t bytes) {
  // Rounded up and from calloc, which gives large blocks as untouched pages; small ones need the alignment.
  const uint64_t whole = (bytes + 63) & ~uint64_t(63);
  std::byte* memory = nullptr;
  if (whole >= 1 << 20) {
    memory = static_cast<std::byte*>(calloc(whole + 64, 1));
  } else {
    memory = static_cast<std::byte*>(aligned_alloc(64, whole));
    if (memory != nullptr) std::memset(memory, 0, whole);
  }
  if (memory == nullptr) throw std::bad_alloc();
  std::lock_guard lock(mutex_);
  auto* aligned = reinterpret_cast<std::byte*>((uintptr_t(memory) + 63) & ~uintptr_t(63));
  memory_.emplace(aligned, memory);
  return aligned;
}

void CpuPlace::release(std::byte* memory, uint64_t) {
  std::lock_guard lock(mutex_);
  memory_.erase(memory);
}

NetworkSlots CpuPlace::allocate_for_network(uint64_t bytes) {
  NetworkSlots slots;
  const int file = memfd_create("starling network slots", MFD_CLOEXEC);
  if (file >= 0 && ftruncate(file, off_t(bytes)) == 0)
    for (std::byte** at : {&slots.memory, &slots.named}) {
      void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
      if (mapped != MAP_FAILED) *at = static_cast<std::byte*>(mapped);
    }
  if (file >= 0) ::close(file);
  if (slots.memory != nullptr && slots.named != nullptr) return slots;
  release_for_network(slots, bytes);
  throw std::bad_alloc();
}

void CpuPlace::seal(NetworkSlots& slots, uint64_t bytes) { mprotect(slots.named, bytes, PROT_NONE); }

void CpuPlace::release_for_network(const NetworkSlots& slots, uint64_t bytes) {
  for (std::byte* at : {slots.memory, slots.named})
    if (at != nullptr) munmap(at, bytes);
}

Pool CpuPlace::make_pool(uint64_t bytes) {
  // Slots of the pool make pipes deeper, not possible: where memory is scarce, and other ranks need some too,
  // fewer will do.
  const uint64_t slot = arena_.header()->pool_slot_bytes;
  bytes = std::min(bytes, arena_.free_bytes() / kPoolShare / slot * slot);
  // Nothing else lies in the segment yet but its directory and the blocks' few pages.
  if (bytes + arena_.header()->directory_offset +
          arena_.header()->directory_capacity * sizeof(DirectoryEntry) >
      arena_.header()->bytes)
    throw Error(Code::invalid_argument, "the slot pool does not fit into the arena",
                "set STARLING_POOL_BYTES lower or STARLING_ARENA_BYTES higher");
  return {arena_.allocate(bytes), bytes / arena_.header()->pool_slot_bytes};
}

void CpuPlace::write(void* to, const void* from, uint64_t bytes) {
  if (bytes == sizeof(uint64_t))
    // Release: what was written before; pairs with whoever acquires this word.
    std::atomic_ref<uint64_t>(*static_cast<uint64_t*>(to))
        .store(*static_cast<const uint64_t*>(from), std::memory_order_release);
  else
    std::memcpy(to, from, bytes);
}

// What blocks may write meanwhile (counters, cursors): each word is whole, all of them are of no one moment.
// The blocks' stores stay plain, so ThreadSanitizer is told to look away.
__attribute__((no_sanitize("thread"))) void CpuPlace::read(void* to, const void* from, uint64_t bytes) const {
  auto* copy = static_cast<uint64_t*>(to);
  const auto* live = static_cast<const volatile uint64_t*>(from);
  for (uint64_t word = 0; word < bytes / sizeof(uint64_t); ++word) copy[word] = live[word];
  STARLING_ASSERT(bytes % sizeof(uint64_t) == 0, "what lies on the device is made of words");
}

std::unique_ptr<PeerMemory> CpuPlace::attach(const std::shared_ptr<PeerArena>& peer) {
  return std::make_unique<ArenaMemory>(peer);
}

std::unique_ptr<starling::Executor> CpuPlace::start(const DaemonStart& start) {
  return std::make_unique<CpuExecutor>(ExecutorOptions{start.daemon, start.completions, start.completion_kind,
                                                       arena_.at(arena_.header()->pool_offset),
                                                       arena_.header(), waiting_});
}

std::unique_ptr<CopyEngine> CpuPlace::make_copy_engine() { return std::make_unique<ThreadCopies>(); }

}  // namespace starling::cpu
