// For tests that write into lane regions of this process's ranks, as a peer's host may at any time.
#pragma once
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <string>

#include "machine/cpu/arena.h"
#include "wire/arena.h"

namespace starling::testing {

// `act(ArenaHeader*, LaneShared*)` for each lane with connectors.
template <class Act>
void for_each_lane_region(Act&& act) {
  char own[40];
  std::snprintf(own, sizeof own, "starling.%016" PRIx64, cpu::process_nonce());
  for (const auto& file : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = file.path().filename();
    if (name.rfind(own, 0) != 0) continue;
    cpu::PeerArena arena(name);
    ArenaHeader* header = arena.header();
    const auto* entries = reinterpret_cast<const DirectoryEntry*>(arena.at(header->directory_offset));
    for (uint64_t e = 0; e < header->directory_capacity; ++e) {
      if (entries[e].offset <= kRemovedLane) continue;
      auto* lane = reinterpret_cast<LaneShared*>(arena.at(entries[e].offset));
      if (lane->channel_count != 0) act(header, lane);
    }
  }
}

}  // namespace starling::testing
