// A lane of all ranks with one small all_reduce, as programs drawn by hand have.
#pragma once
#include "machine/sim/campaign.h"

namespace starling::sim {

inline void add_lane_of_all(Program& program, Random& random, uint32_t most_blocks, PlanCache& plans) {
  LaneSpec& lane = program.lanes.emplace_back();
  for (uint32_t rank = 0; rank < program.rank_count; ++rank) lane.ranks.push_back(rank);
  CallSpec& call = lane.calls.emplace_back();
  const char* const plan = random.chance(kAlways / 2) ? "two_shot_packets" : "ring";
  const uint32_t blocks = 1 + random.below(most_blocks);
  call.plan = plans.get(plan, {Collective::kAllReduce, program.rank_count, 0, blocks, false});
  call.count = 1 + random.below(300);
}

}  // namespace starling::sim
