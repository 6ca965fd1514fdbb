#include "monitor/publish.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/assert.h"
#include "base/error.h"
#include "base/log.h"

namespace starling::monitor {
namespace {

std::atomic_ref<uint64_t> atomic(uint64_t& word) { return std::atomic_ref<uint64_t>(word); }

template <size_t N>
void copy_text(char (&to)[N], const std::string& from) {
  std::memcpy(to, from.data(), std::min(from.size(), N - 1));  // what follows is zero
}

MonitorShared* shared_of(cpu::Arena& arena) {
  // Acquire: pairs with the release in publish_rank().
  const uint64_t offset = atomic(arena.header()->monitor_offset).load(std::memory_order_acquire);
  return offset == 0 ? nullptr : reinterpret_cast<MonitorShared*>(arena.at(offset));
}

}  // namespace

void publish_rank(cpu::Arena& arena, const RankDescription& description) {
  STARLING_ASSERT(shared_of(arena) == nullptr, "a segment is one rank's");
  const uint64_t offset = arena.allocate(sizeof(MonitorShared));
  auto* shared = reinterpret_cast<MonitorShared*>(arena.at(offset));
  shared->version = kMonitorVersion;
  shared->block_count = description.block_count;
  shared->block_stride = description.block_stride;
  if (description.counters != nullptr) shared->counters_offset = arena.offset_of(description.counters);
  shared->window = description.window;
  copy_text(shared->device, description.device);
  // Release: all of it; pairs with the acquire in Watch.
  atomic(arena.header()->monitor_offset).store(offset, std::memory_order_release);
}

void publish_group(cpu::Arena& arena, const Group& group) {
  MonitorShared* shared = shared_of(arena);
  uint64_t none = 0;
  // 2: somebody is at it.
  if (shared == nullptr || !atomic(shared->joined).compare_exchange_strong(none, 2)) return;
  shared->job_high = group.high;
  shared->job_low = group.low;
  shared->rank = group.rank;
  shared->size = group.size;
  copy_text(shared->job, group.name);
  // Release: what the group is; pairs with the acquire in Watch.
  atomic(shared->joined).store(1, std::memory_order_release);
}

PathRing* add_path(cpu::Arena& arena, const PathDescription& description) {
  MonitorShared* shared = shared_of(arena);
  if (shared == nullptr) return nullptr;
  uint64_t offset = 0;
  try {
    offset = arena.allocate(sizeof(PathRing));
  } catch (const Error& error) {
    log(LogLevel::warn, "transfers to rank ", description.peer, " are not recorded: ", error.what());
    return nullptr;
  }
  auto* ring = reinterpret_cast<PathRing*>(arena.at(offset));
  ring->peer = description.peer;
  ring->path = description.path;
  ring->link = description.link;
  copy_text(ring->name, description.name);
  ring->next = atomic(shared->first_path).load(std::memory_order_relaxed);
  // Release: the ring and its `next`; pairs with the acquire in Watch.
  while (!atomic(shared->first_path)
              .compare_exchange_weak(ring->next, offset, std::memory_order_release,
                                     std::memory_order_relaxed)) {}
  return ring;
}

}  // namespace starling::monitor
