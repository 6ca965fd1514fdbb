// Goal: events that deadlock the model finish under the shipped daemon, on any machine that the seeds draw;
// without yielding the same events hang, so the mapping carries the deadlock over. Method: planted and shrunk
// deadlocks of both models, and whole rounds with more lanes than a rank of the simulator's own programs can
// have, through study/replay.h. sanitize: no (sanitizers do not follow fibers; the cores they would check run
// in tests/conformance)
#include "study/replay.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "study/shrink.h"
#include "study/study.h"

namespace starling::study {
namespace {

Model three_d(Rule rule) {
  return Model({rule, Order::interleaved, 8, three_d_groups({2, 2, 2, 40, 90}), 0.02, 0.02});
}

std::vector<Program> shrunk_deadlocks(Rule rule, std::int64_t count) {
  Work work;
  work.rounds = 100'000;
  work.seed = 3;
  work.threads = 1;
  std::vector<Program> shrunk;
  for (const Program& program : planted_deadlocks(three_d(rule), work, count))
    shrunk.push_back(shrink(program, rule).program);
  return shrunk;
}

std::uint64_t sum(const std::vector<std::uint32_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t(0));
}

std::int64_t launches_of(const Program& program) {
  std::int64_t launches = 0;
  for (const auto& members : program.members) launches += static_cast<std::int64_t>(members.size());
  return launches;
}

class Shrunk : public testing::TestWithParam<Rule> {};

TEST_P(Shrunk, FinishWithTheShippedDaemon) {
  Replayer replayer;
  const auto programs = shrunk_deadlocks(GetParam(), 300);
  ASSERT_EQ(programs.size(), 300u);
  for (bool wild : {false, true}) {
    std::uint64_t seed = 0, parks = 0;
    for (const Program& program : programs) {
      const Replayed replayed = replayer.run(program, {}, {.seed = ++seed, .wild = wild});
      ASSERT_EQ(replayed.failure, "") << (wild ? "wild, " : "calm, ") << "seed " << seed << "\n"
                                      << replayed.state;
      EXPECT_EQ(replayed.launches, launches_of(program));
      ASSERT_EQ(replayed.parks.size(), program.members.size());
      parks += sum(replayed.parks);
      // Each GPU of the circle stands in a synchronization behind what only another one's quit can complete.
      if (GetParam() == Rule::synchronization && !wild) {
        EXPECT_GE(replayed.stuck_quits, 1) << "seed " << seed;
        EXPECT_EQ(replayed.synchronizations, program.gpus()) << "seed " << seed;
      }
    }
    EXPECT_GT(parks, 0u);
  }
}

TEST_P(Shrunk, HangWithoutYielding) {
  Replayer replayer;
  std::uint64_t seed = 0;
  for (const Program& program : shrunk_deadlocks(GetParam(), 100)) {
    const Replayed replayed = replayer.run(program, {}, {.seed = ++seed, .yielding = false});
    EXPECT_TRUE(replayed.hangs) << "seed " << seed << ": " << replayed.failure;
    EXPECT_LT(replayed.launches, launches_of(program));
  }
}

INSTANTIATE_TEST_SUITE_P(Replay, Shrunk, testing::Values(Rule::single_queue, Rule::synchronization),
                         [](const auto& info) {
                           return info.param == Rule::single_queue ? "SingleQueue" : "Synchronization";
                         });

TEST(Whole, RoundsOfManyLanesFinish) {
  for (Rule rule : {Rule::single_queue, Rule::synchronization}) {
    const Model model = three_d(rule);
    Work work;
    work.rounds = 10'000;
    work.seed = 1;
    work.threads = 1;
    Replayer replayer;
    for (std::int64_t round : find_deadlocks(model, work, 3)) {
      const Program program = round_program(model, 1, round);
      ASSERT_GT(program.collectives(), 500);
      for (std::uint64_t pace_ns : {0, 5000}) {
        const Replayed replayed =
            replayer.run(program, {}, {.seed = 1, .checks = pace_ns == 0, .pace_ns = pace_ns});
        EXPECT_EQ(replayed.failure, "") << "round " << round << "\n" << replayed.state;
        EXPECT_EQ(replayed.launches, launches_of(program));
      }
      EXPECT_TRUE(replayer.run(program, {}, {.seed = 1, .yielding = false}).hangs);
    }
  }
}

// Rounds of few launches are many different orders; on wild machines peers also learn late of each other's
// lanes.
TEST(Whole, RoundsOfFewLaunchesFinish) {
  for (Rule rule : {Rule::single_queue, Rule::synchronization}) {
    const Model model({rule, Order::interleaved, 8, three_d_groups({2, 2, 2, 8, 12}), 0.05, 0.05});
    Work work;
    work.rounds = 100'000;
    work.seed = 1;
    work.threads = 1;
    Replayer replayer;
    std::uint64_t seed = 0;
    for (std::int64_t round : find_deadlocks(model, work, 500)) {
      const Replayed replayed =
          replayer.run(round_program(model, 1, round), {}, {.seed = ++seed, .wild = true});
      ASSERT_EQ(replayed.failure, "") << "round " << round << ", seed " << seed << "\n" << replayed.state;
    }
    EXPECT_EQ(seed, 500u);
  }
}

TEST(Replay, IsExact) {
  const auto programs = shrunk_deadlocks(Rule::synchronization, 20);
  Replayer first, second;
  for (const Program& program : programs) {
    const Replayed a = first.run(program, {}, {.seed = 9, .wild = true});
    const Replayed b = second.run(program, {}, {.seed = 9, .wild = true});
    EXPECT_EQ(a.steps, b.steps);
    EXPECT_EQ(a.virtual_us, b.virtual_us);
    EXPECT_EQ(a.parks, b.parks);
  }
}

// Collectives of one lane meet in their order; a GPU alone in a group meets nobody.
TEST(Replay, LanesMayHaveSeveralCollectives) {
  const Program program{{{0, 1, 3, kSynchronize, 2}, {3, kSynchronize, 0, 1, 2}, {4}},
                        {{0, 1}, {0, 1}, {0, 1}, {0, 1}, {2}},
                        {0, 0, 0, 1, 2}};
  Replayer replayer;
  const Replayed replayed = replayer.run(program, {0, 0, 0, 1, 2}, {});
  EXPECT_EQ(replayed.failure, "") << replayed.state;
  EXPECT_EQ(replayed.launches, 9);
  EXPECT_EQ(replayed.parks.size(), 3u);
}

TEST(Replay, RefusesWhatIsNoProgram) {
  Replayer replayer;
  const Program swapped{{{0, 1}, {1, 0}}, {{0, 1}, {0, 1}}, {0, 0}};
  EXPECT_THROW(replayer.run(swapped, {0, 0}, {}), Error);  // inside a lane the order is the program's
  EXPECT_THROW(replayer.run(swapped, {0}, {}), Error);  // a lane for each collective
  EXPECT_THROW(replayer.run(swapped, {0, 7}, {}), Error);  // no such lane
  EXPECT_THROW(replayer.run(swapped, {1, 1}, {}), Error);  // lane 0 has nothing
  EXPECT_THROW(replayer.run({{{0}, {}}, {{0, 1}}, {0}}, {}, {}), Error);  // GPU 1 never launches
  EXPECT_THROW(replayer.run({}, {}, {}), Error);
  EXPECT_EQ(replayer.run(swapped, {}, {}).failure, "");
}

}  // namespace
}  // namespace starling::study
