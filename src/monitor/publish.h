// The owner's side of MonitorShared (wire/monitor.h): makes it in the rank's segment, and adds paths to it.
#pragma once
#include <string>

#include "machine/cpu/arena.h"
#include "wire/monitor.h"
#include "wire/trace.h"

namespace starling::monitor {

struct RankDescription {
  std::string device;
  uint64_t window = 0;
  // Of the first block, in the segment; null: the blocks' counters are elsewhere.
  const BlockCounters* counters = nullptr;
  uint64_t block_count = 0;
  uint64_t block_stride = 0;
};

// Once for each segment. Watchers find it from then on.
void publish_rank(cpu::Arena& arena, const RankDescription& description);

struct Group {
  uint64_t high = 0;
  uint64_t low = 0;
  std::string name;
  uint32_t rank = 0;
  uint32_t size = 0;
};

// The first group that the rank joins is its job; later ones are ignored. Any thread.
void publish_group(cpu::Arena& arena, const Group& group);

struct PathDescription {
  uint32_t peer = 0;
  uint32_t path = 0;
  LinkKind link = LinkKind::kTcp;
  std::string name;
};

// A ring for one more path. Null where the segment has no room for it: the path is not recorded then.
PathRing* add_path(cpu::Arena& arena, const PathDescription& description);

}  // namespace starling::monitor
