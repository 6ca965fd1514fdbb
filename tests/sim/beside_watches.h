// A stream stands for the first of several large operations and its watches are woken at once, so the daemon
// comes beside them and finds fewer parts than it has blocks. When the watches have gone, is it whole for the
// rest?
#pragma once
#include "sim/one_stream.h"

namespace starling::sim {

inline Case beside_watches(uint64_t seed, bool stands, PlanCache& plans) {
  Random random(seed, 36);
  constexpr uint32_t kBlocks = 4, kLater = 16, kOperations = 0, kFutures = 1;
  CallSpec call;
  call.plan = plans.get("ring", {Collective::kAllReduce, 2, 0, kBlocks, false});
  call.count = 3000 + random.below(3000);
  Case drawn = on_one_stream(seed, "beside watches", call);
  drawn.program.streams = 2;
  drawn.program.operation_streams = 1u << kOperations;
  Options& o = drawn.options;
  o.blocks = kBlocks;
  o.daemon_first = 1;
  o.doorbells = o.guards = 0;
  o.hardware_queues = 8;
  o.rendezvous = 1;
  o.watch_limit = 1;
  o.wide_watches = 1;
  o.watch_blocks = 2 + random.below(kBlocks - 1);
  o.wake_ns = 0;
  o.turn_ns = 1'000;
  o.sm_slots = 3 * kBlocks;
  for (std::vector<Step>& steps : drawn.program.steps) {
    steps.clear();
    steps.push_back({StepKind::kStart, 0, 0, kOperations, 0});
    if (stands) steps.push_back({StepKind::kStreamWait, 0, 0, kFutures});
    for (uint32_t k = 0; k < kLater; ++k) steps.push_back({StepKind::kStart, 0, 0, kOperations, 0});
    steps.push_back({StepKind::kWait});
  }
  return drawn;
}

}  // namespace starling::sim
