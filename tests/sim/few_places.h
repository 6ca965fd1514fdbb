// One operation after the other, each of which holds its stream, on GPUs with fewer places than it has
// blocks; and its blocks wait for each other. Who kept its place for want of a daemon would keep it from the
// block that it waits for.
#pragma once
#include "machine/sim/crossing_plan.h"
#include "sim/one_stream.h"

namespace starling::sim {

inline Case few_places(uint64_t seed, PlanCache& plans) {
  Random random(seed, 33);
  const uint32_t ranks = 2 + random.below(2);
  const uint32_t blocks = 3 + random.below(2);
  const char* const algorithm = random.chance(kAlways / 2) ? "ring" : "direct_pull";
  const Collective kind = algorithm[0] == 'r' ? Collective::kAllReduce : Collective::kReduce;
  CallSpec call;
  call.plan = crossing_plan(plans.get(algorithm, {kind, ranks, 0, 1, false}), blocks, random);
  call.count = 1 + random.below(5000);
  Case drawn = on_one_stream(seed, "few places", call);
  Options& o = drawn.options;
  o.blocks = blocks;
  o.daemon_first = 1;
  o.doorbells = 0;
  o.gate_limit = 0;
  o.hardware_queues = 8;
  o.sm_slots = 2 + random.below(blocks - 2);
  // Each alone: none is under way when it is called.
  for (std::vector<Step>& steps : drawn.program.steps) {
    steps.clear();
    for (uint32_t k = 0; k < 6; ++k) {
      steps.push_back({StepKind::kStart, 0, 0, 0, 1});
      steps.push_back({StepKind::kWait});
    }
  }
  return drawn;
}

}  // namespace starling::sim
