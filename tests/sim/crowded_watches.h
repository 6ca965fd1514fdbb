// Streams that all stand with watches, each rank's operations in an order of its own, where the daemon stays
// away while one stands, and the GPU has room for a guard, a block of a start kernel, and one watch: so one
// may serve at a time (device/watched.h). Beside the campaigns, where so little room is seldom.
#pragma once
#include "machine/sim/campaign.h"
#include "machine/sim/stream_program.h"
#include "sim/lane_of_all.h"

namespace starling::sim {

inline Case crowded_watches(uint64_t seed, PlanCache& plans) {
  Random random(seed, 26);
  Case drawn{{}, stream_options(StreamKind::kInDriver, seed), seed};
  Options& o = drawn.options;
  o.doorbells = 0;
  o.rendezvous = 0;
  o.gate_limit = 0;
  o.sm_slots = 3;
  o.daemon_kept_out = 1;
  o.wake_ns = 0;
  o.turn_ns = 2'500;
  o.served_ns = kForever / 4;
  o.hardware_queues = 32;
  o.begin_delay_ns = 1 + random.below(500);
  Program& program = drawn.program;
  program.name = "crowded watches";
  program.rank_count = 2;
  program.streams = o.watch_limit = 5 + random.below(3);
  for (uint32_t k = 0; k < program.streams; ++k) {
    add_lane_of_all(program, random, o.blocks, plans);
  }
  if (o.blocks > 1 && random.chance(kAlways / 2)) {
    o.watch_blocks = 2 + random.below(o.blocks - 1);
    o.wide_watches = o.watch_limit;
  }
  const uint32_t rounds = 4 + random.below(5);
  for (uint32_t rank = 0; rank < program.rank_count; ++rank) {
    Random own(hash_combine(seed, rank), 27);
    std::vector<uint32_t> order(program.lanes.size());
    for (uint32_t k = 0; k < order.size(); ++k) order[k] = k;
    std::vector<Step>& steps = program.steps.emplace_back();
    for (uint32_t round = 0; round < rounds; ++round) {
      shuffle(order, own);
      for (uint32_t lane : order) {
        steps.push_back({StepKind::kStart, lane, 0, lane, 1, 1});
        if (own.chance(kAlways / 3)) steps.push_back({StepKind::kPause, 0, 1 + own.skewed(20'000)});
      }
      if (own.chance(kAlways / 4)) steps.push_back({StepKind::kLoadKernels});
    }
    steps.push_back({StepKind::kWait});
  }
  return drawn;
}

}  // namespace starling::sim
