// Goal: in small cases the core is right under all schedules, not only under those that seeds draw.
// Method: exhaustive exploration (machine/sim/explore.h) of two ranks with two collectives in opposite
// orders, one tile each; budgets and quit periods may end at any look. Planted bugs show that it would see
// something. sanitize: no (sanitizers do not follow fibers)
#include "machine/sim/explore.h"

#include <gtest/gtest.h>

#include "sim/mutants.h"

namespace starling::sim {
namespace {

struct Small {
  const char* algorithm;
  uint32_t lanes;
  uint32_t expiries;  // of each block
};

Explored explore_small(const Core& core, const Small& small) {
  Simulation simulation(core);
  Options options;
  options.pool_slots = 1;
  options.submission_capacity = options.completion_capacity = 4;
  Program program;
  program.name = "small";
  program.rank_count = 2;
  program.steps.resize(2);
  for (uint32_t k = 0; k < small.lanes; ++k) {
    LaneSpec lane;
    lane.ranks = {0, 1};
    lane.count = 4;
    lane.plan = simulation.plans().get(small.algorithm, {Collective::kAllReduce, 2, 0, 1, false});
    program.lanes.push_back(lane);
    program.steps[0].push_back({StepKind::kSubmit, k, 0});
    program.steps[1].push_back({StepKind::kSubmit, small.lanes - 1 - k, 0});
  }
  const Explored explored = explore(simulation, program, options, {.expiries_per_fiber = small.expiries});
  std::printf("%s, %u lanes, %u expiries a block: %llu states, %llu executions, %llu transitions%s\n",
              small.algorithm, small.lanes, small.expiries, static_cast<unsigned long long>(explored.states),
              static_cast<unsigned long long>(explored.executions),
              static_cast<unsigned long long>(explored.transitions),
              explored.exhausted ? ", all schedules" : "");
  return explored;
}

class AllSchedules : public testing::TestWithParam<Small> {};

TEST_P(AllSchedules, TheShippedCoreIsRight) {
  const Explored explored = explore_small(shipped_core(), GetParam());
  EXPECT_TRUE(explored.exhausted);
  EXPECT_EQ(explored.failure, "");
  EXPECT_GT(explored.completed, 0u);
}

INSTANTIATE_TEST_SUITE_P(Cases, AllSchedules,
                         testing::Values(Small{"one_shot", 1, 0}, Small{"one_shot", 1, 2},
                                         Small{"one_shot", 2, 0}, Small{"one_shot", 2, 1},
                                         Small{"ring", 2, 1}));

const Core& mutant(const std::string& name) {
  for (const Mutant& m : mutants())
    if (name == m.name) return m.core();
  ADD_FAILURE() << "no planted bug is called " << name;
  return shipped_core();
}

TEST(AllSchedules, PlantedBugsAreSeen) {
  for (const char* name : {"unbounded_wait", "receive_one_early", "stuck_counts_as_done",
                           "blocks_quit_singly", "visits_the_front_only"})
    EXPECT_NE(explore_small(mutant(name), {"one_shot", 2, 1}).failure, "") << name;
}

}  // namespace
}  // namespace starling::sim
