// Goal: the shipped core does what it must under every schedule that the seeds draw: right bytes, exactly
// once, in order, within a bound, nothing left over; a seed replays exactly. Method: the campaigns of
// machine/sim/campaign.h on two threads, every check on; a failing seed is shrunk and told. A quarter of the
// seeds; FULL_TESTS=1 takes all.
// sanitize: no (sanitizers do not follow fibers)
#include "machine/sim/campaign.h"

#include <gtest/gtest.h>

#include "machine/sim/crossing_plan.h"
#include "sim/run_seeds.h"

namespace starling::sim {
namespace {

TEST(Campaign, Dfccl1OfOneIteration) {
  const uint64_t seeds = part_of(10'000);
  EXPECT_EQ(run_seeds(Campaign::kDfccl1, 1, seeds).operations, 64 * seeds);
}
TEST(Campaign, Dfccl2OfOneIteration) {
  const uint64_t seeds = part_of(10'000);
  EXPECT_GT(run_seeds(Campaign::kDfccl2, 1, seeds).synchronizations, 60 * seeds);
}
TEST(Campaign, RandomPrograms) {
  const uint64_t seeds = part_of(12'000);
  EXPECT_GT(run_seeds(Campaign::kRandom, 1, seeds).operations, 8 * seeds);
}
TEST(Campaign, RanksThatDie) {
  const uint64_t seeds = part_of(4000);
  EXPECT_GT(run_seeds(Campaign::kDeath, 1, seeds).operations, 5 * seeds / 2);
}
// Plans of any width, and plans that give connections to other blocks, in one lane (device/lane_order.h).
TEST(Lanes, OperationsOfAllPlansKeepToTheirConnectors) {
  Simulation simulation;
  for (uint64_t seed = 1; seed <= part_of(1500); ++seed) {
    Random random(seed, 20);
    Options options = random_options(seed);
    options.blocks = 3;
    options.threads = 1;
    options.fence_chance = 0;
    LaneSpec lane;
    lane.ranks = {0, 1, 2};
    for (uint32_t k = 0; k < 5; ++k) {
      const Collective kind = k % 2 ? Collective::kReduce : Collective::kAllGather;
      const auto plan = [&](uint32_t blocks) {
        return simulation.plans().get(k % 2 ? "chain" : "ring", {kind, 3, 0, blocks, false});
      };
      const uint32_t blocks = 1 + random.below(3);
      CallSpec& call = lane.calls.emplace_back();
      call.plan = random.chance(kAlways / 2) ? plan(blocks) : crossing_plan(plan(1), blocks, random);
      call.count = 1 + random.below(200);
    }
    Program program;
    program.name = "one lane";
    program.rank_count = 3;
    program.lanes = {lane};
    program.steps.assign(3, std::vector<Step>(12, Step{StepKind::kSubmit, 0}));
    const Report report = simulation.run(program, options, seed);
    ASSERT_EQ(report.failure, "") << "seed " << seed << "\n" << report.state;
  }
}

TEST(Replay, IsExact) { expect_exact_replays(Campaign::kMixed); }

TEST(Replay, SeedsDiffer) {
  Simulation simulation;
  const Case a = draw_case(Campaign::kDfccl1, 5, simulation.plans());
  const Report once = simulation.run(a.program, a.options, 5);
  const Report other = simulation.run(a.program, a.options, 6);
  EXPECT_NE(once.virtual_ns, other.virtual_ns);
}

// What yielding is for: the same programs without it stop for ever.
TEST(Yielding, SwitchedOffDisorderDeadlocks) {
  Simulation simulation;
  uint32_t deadlocks = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Options options;
    options.unbounded = 1;
    const Program program =
        dfccl_program({.program = 1, .iterations = 1, .divisor = 64}, seed, options, simulation.plans());
    const Report report = simulation.run(program, options, seed);
    deadlocks += report.failure.find("deadlock") != std::string::npos;
  }
  EXPECT_EQ(deadlocks, 20u);
}

TEST(Story, NamesWhatHappened) {
  Simulation simulation;
  const Case drawn = draw_case(Campaign::kDfccl2, 3, simulation.plans());
  const std::string text = story(simulation, drawn, 100000);
  for (const char* word : {"all_reduce", "synchronize", "enters the daemon", "parks", "leaves", "publishes",
                           "all operations complete"})
    EXPECT_NE(text.find(word), std::string::npos) << word;
}

}  // namespace
}  // namespace starling::sim
