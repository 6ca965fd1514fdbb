// Operations that hold nothing, and that a stream of the program's comes to stand for right behind the call,
// as those of PyTorch whose futures are asked for: does the start kernel keep its place, or leave before?
// Between them another lane's, in the same stream and in another order on each rank, that nobody waits for
// before the end; device synchronizations; and calls that wait in the driver, behind which no daemon can be
// launched.
#pragma once
#include "machine/sim/campaign.h"
#include "machine/sim/stream_program.h"
#include "sim/lane_of_all.h"

namespace starling::sim {

inline Case awaited_soon(uint64_t seed, PlanCache& plans) {
  Random random(seed, 24);
  Case drawn{{}, stream_options(StreamKind::kInDriver, seed), seed};
  Options& o = drawn.options;
  o.doorbells = 0;
  o.sm_slots += random.below(3);
  constexpr uint32_t kOperations = 0, kFutures = 1, kOwn = 2;  // streams
  constexpr uint32_t kOrdered = 0, kOther = 1;  // lanes
  Program& program = drawn.program;
  program.name = "awaited soon";
  program.rank_count = 2 + random.below(2);
  program.streams = 3;
  program.operation_streams = 1u << kOperations;
  const bool other = random.chance(3 * kAlways / 4);
  for (uint32_t k = 0; k < 1u + other; ++k) add_lane_of_all(program, random, o.blocks, plans);
  const uint32_t rounds = 4 + random.below(10);
  const auto soon = random.next();  // which of them a stream comes to stand for: the same on all ranks
  for (uint32_t rank = 0; rank < program.rank_count; ++rank) {
    Random own(hash_combine(seed, rank), 25);
    std::vector<Step>& steps = program.steps.emplace_back();
    uint32_t others = other ? rounds / 2 : 0;
    for (uint32_t round = 0; round < rounds; ++round) {
      if (others > 0 && own.chance(kAlways / 3)) {
        steps.push_back({StepKind::kStart, kOther, 0, kOperations, 0, 1});
        --others;
      }
      steps.push_back({StepKind::kStart, kOrdered, 0, kOperations, 0, 1});
      if (own.chance(kAlways / 4)) steps.push_back({StepKind::kPause, 0, 1 + own.skewed(60'000)});
      if (soon >> round & 1) {
        steps.push_back({StepKind::kStreamWait, kOrdered, 0, own.chance(3 * kAlways / 4) ? kFutures : kOwn});
        if (own.chance(kAlways / 3)) steps.push_back({StepKind::kCopyBack, 0, 0, kFutures});
        if (own.chance(kAlways / 4)) steps.push_back({StepKind::kLoadKernels});
      }
      if (own.chance(kAlways / 4)) steps.push_back({StepKind::kSynchronize});
      if (!other && own.chance(kAlways / 8)) steps.push_back({StepKind::kWait});
    }
    for (; others > 0; --others) steps.push_back({StepKind::kStart, kOther, 0, kOperations, 0, 1});
    for (uint32_t lane = 0; lane < program.lanes.size(); ++lane)
      steps.push_back({StepKind::kStreamWait, lane, 0, kOwn});
    steps.push_back({StepKind::kWait});
  }
  return drawn;
}

}  // namespace starling::sim
