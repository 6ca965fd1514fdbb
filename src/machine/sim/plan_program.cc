#include "machine/sim/plan_program.h"

#include <algorithm>

#include "base/error.h"

namespace starling::sim {
namespace {

void check(const std::vector<GivenPlan>& plans) {
  for (const GivenPlan& given : plans) {
    if (given.plan->in_place() || given.plan->rank_count() != plans.front().plan->rank_count())
      throw Error(Code::invalid_argument,
                  "plan '" + given.plan->name() + "' is in place, or for another number of ranks",
                  "give out-of-place plans of one number of ranks");
  }
}

LaneSpec lane_of(const GivenPlan& given, uint64_t largest_count, Random& random) {
  static constexpr DataType kTypes[] = {DataType::kInt32, DataType::kUint8, DataType::kInt64};
  LaneSpec lane;
  for (uint32_t r = 0; r < given.plan->rank_count(); ++r) lane.ranks.push_back(r);
  CallSpec& call = lane.calls.emplace_back();
  call.plan = given.plan;
  call.data_type = kTypes[random.below(std::size(kTypes))];
  call.count = 1 + random.below(uint32_t(largest_count));
  call.origins = given.origins;
  return lane;
}

}  // namespace

Report run_plans(Simulation& simulation, const std::vector<GivenPlan>& plans, uint64_t largest_count,
                 uint32_t rounds, uint64_t seed) {
  check(plans);
  Random random(seed, 11);
  Options options = random_options(seed);
  for (const GivenPlan& given : plans) options.blocks = std::max(options.blocks, given.plan->block_count());
  Program program;
  program.name = "plans";
  program.rank_count = plans.front().plan->rank_count();
  for (const GivenPlan& given : plans) program.lanes.push_back(lane_of(given, largest_count, random));
  program.steps.resize(program.rank_count);
  std::vector<uint32_t> calls(plans.size());
  for (uint32_t k = 0; k < calls.size(); ++k) calls[k] = k;
  for (auto& steps : program.steps) {
    for (uint32_t round = 0; round < rounds; ++round) {
      for (size_t k = calls.size(); k > 1; --k) std::swap(calls[k - 1], calls[random.below(uint32_t(k))]);
      for (const uint32_t lane : calls) {
        steps.push_back({StepKind::kSubmit, lane});
        if (random.chance(kAlways / 8)) steps.push_back({StepKind::kSynchronize});
      }
    }
  }
  return simulation.run(program, options, seed);
}

}  // namespace starling::sim
