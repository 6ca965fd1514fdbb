// Messages of one stream that begin together (docs/design/0007-start-as-a-kernel.md), each rank's in an order
// of its own, on a GPU with fewer places than they have blocks: does each find its place, without a daemon
// and beside calls that wait in the driver? Beside the campaigns, where so many lanes of a stream are seldom.
#pragma once
#include "machine/sim/campaign.h"
#include "machine/sim/stream_program.h"

namespace starling::sim {

inline Case crossed_messages(uint64_t seed, PlanCache& plans) {
  Random random(seed, 22);
  Case drawn{{}, stream_options(StreamKind::kInDriver, seed), seed};
  Options& o = drawn.options;
  o.blocks = 1;
  o.gate_limit = random.below(2);
  o.sm_slots = o.blocks + o.gate_limit + 1;
  o.doorbells = 0;
  Program& program = drawn.program;
  program.name = "crossed messages";
  program.rank_count = 2 + random.below(2);
  program.streams = 1;
  const char* const plan = random.chance(kAlways / 2) ? "direct_packets" : "direct";
  for (uint32_t from = 0; from < program.rank_count; ++from)
    for (uint32_t tag = 0; tag < 2; ++tag)
      for (uint32_t to = 0; to < program.rank_count; ++to) {
        if (to == from) continue;
        LaneSpec& lane = program.lanes.emplace_back();
        lane.ranks = {from, to};
        CallSpec& call = lane.calls.emplace_back();
        call.plan = plans.get(plan, {Collective::kSendRecv, 2, 0, 1, false});
        call.count = 1 + random.below(200);
      }
  for (uint32_t rank = 0; rank < program.rank_count; ++rank) {
    Random own(hash_combine(seed, rank), 23);
    std::vector<uint32_t> mine;
    for (uint32_t k = 0; k < program.lanes.size(); ++k)
      if (program.lanes[k].ranks[0] == rank || program.lanes[k].ranks[1] == rank) mine.push_back(k);
    std::vector<Step>& steps = program.steps.emplace_back();
    for (uint32_t round = 1; round <= 5; ++round) {
      const bool prepared = own.chance(kAlways / 2);
      if (prepared) steps.push_back({StepKind::kWait});
      shuffle(mine, own);
      for (uint32_t lane : mine)
        steps.push_back({prepared ? StepKind::kPrepared : StepKind::kStart, lane, 0, 0, 1, 1, false, round});
      if (own.chance(kAlways / 2))
        steps.push_back({own.chance(kAlways / 2) ? StepKind::kCopyBack : StepKind::kLoadKernels});
    }
  }
  return drawn;
}

}  // namespace starling::sim
