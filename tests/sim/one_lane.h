// One lane of packets on one stream, whose plans give connections to the same blocks or to others: which
// operations have to wait for all that is before them, and do they? Beside the campaigns, where such a lane
// is seldom.
#pragma once
#include "machine/sim/campaign.h"
#include "machine/sim/crossing_plan.h"
#include "machine/sim/stream_program.h"

namespace starling::sim {

inline Case one_lane_of_packets(uint64_t seed, PlanCache& plans) {
  Random random(seed, 21);
  Case drawn{{}, stream_options(StreamKind::kOneStream, seed), seed};
  Options& o = drawn.options;
  o.blocks = 3;
  o.sm_slots = o.blocks + o.gate_limit + 1 + random.below(4);
  o.fence_chance = 0;
  o.begin_delay_ns = random.skewed(50'000);  // meanwhile the daemon may end what is before
  o.first_message = kPacketSlots + random.below(8);  // so they come bound
  LaneSpec lane;
  lane.ranks = {0, 1, 2};
  for (uint32_t k = 0; k < 5; ++k) {
    const auto plan = [&](uint32_t blocks) {
      return plans.get("one_shot_packets", {Collective::kAllReduce, 3, 0, blocks, false});
    };
    const uint32_t blocks = 1 + random.below(3);
    CallSpec& call = lane.calls.emplace_back();
    call.plan = random.chance(kAlways / 2) ? plan(blocks) : crossing_plan(plan(1), blocks, random);
    call.count = 1 + random.below(64);
  }
  drawn.program.name = "one lane of packets";
  drawn.program.rank_count = 3;
  drawn.program.streams = 1;
  drawn.program.lanes = {lane};
  drawn.program.steps.assign(3, std::vector<Step>(12, Step{StepKind::kStart, 0}));
  return drawn;
}

}  // namespace starling::sim
