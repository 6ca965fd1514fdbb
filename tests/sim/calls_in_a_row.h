// Operations that the CPU calls one after the other, each awaited for a while: they begin as kernels, and one
// that has stayed takes most of them. Between them pauses, after some of which it has just left, device
// synchronizations, which wait for it, and a lane that streams use too.
#pragma once
#include "machine/sim/campaign.h"
#include "machine/sim/stream_program.h"
#include "sim/lane_of_all.h"

namespace starling::sim {

inline Case calls_in_a_row(uint64_t seed, PlanCache& plans) {
  Random random(seed, 38);
  Case drawn{{}, stream_options(StreamKind::kDisorder, seed), seed};
  Options& o = drawn.options;
  o.doorbells = 0;
  o.hardware_queues = 8;
  o.before_streams_chance = kAlways;
  o.call_boxes = 1 + random.below(2);
  o.call_row_ns = kForever;
  o.call_linger_ns = 1 + random.below(80'000);
  o.call_life_ns = random.chance(kAlways / 2) ? kForever : 1 + random.skewed(400'000);
  o.call_wait_ns = 100'000;
  o.sm_slots += o.call_boxes;
  Program& program = drawn.program;
  program.name = "calls in a row";
  program.rank_count = 2 + random.below(2);
  program.streams = 1;
  const uint32_t lanes = 1 + random.below(3);
  const uint32_t most_blocks = random.chance(kAlways / 4) ? o.blocks : 1;
  for (uint32_t k = 0; k < lanes; ++k) add_lane_of_all(program, random, most_blocks, plans);
  std::vector<uint32_t> calls;
  for (uint32_t n = 8 + random.below(24); n > 0; --n) calls.push_back(random.below(lanes));
  for (uint32_t rank = 0; rank < program.rank_count; ++rank) {
    Random own(hash_combine(seed, rank), 39);
    std::vector<Step>& steps = program.steps.emplace_back();
    for (const uint32_t lane : calls) {
      steps.push_back({StepKind::kStart, lane});
      if (own.chance(kAlways / 4))
        steps.push_back({StepKind::kPause, 0, 1 + own.skewed(2 * o.call_linger_ns)});
      if (own.chance(kAlways / 16)) steps.push_back({StepKind::kSynchronize});
    }
    steps.push_back({StepKind::kWait});
  }
  return drawn;
}

}  // namespace starling::sim
