// Goal: counts do not depend on threads, shrunk deadlocks deadlock.
// Method: the same rounds on one and three threads; every deadlock found in random models is shrunk and
// judged again.
#include "study/study.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "random_models.h"
#include "settings.h"
#include "study/shrink.h"

namespace starling::study {
namespace {

TEST(Study, counts_do_not_depend_on_threads) {
  const Model model(three_d(Rule::synchronization, 0.01, 0.02));
  const Counts one = count_deadlocks(model, work(1000), {true, true});
  const Counts three = count_deadlocks(model, work(1000, 3), {true, true});
  EXPECT_GT(one.exact, 0);
  EXPECT_EQ(one.exact, three.exact);
  EXPECT_EQ(one.released, three.released);
  EXPECT_EQ(one.both, three.both);
  EXPECT_EQ(find_deadlocks(model, work(1000), 5), find_deadlocks(model, work(1000, 3), 5));
  EXPECT_EQ(estimate_deadlocks(model, work(500), Decision::exact).probability,
            estimate_deadlocks(model, work(500, 3), Decision::exact).probability);
}

TEST(Study, one_wanted_decision_counts_as_with_both) {
  const Model model(three_d(Rule::synchronization, 0.01, 0.02));
  const Counts both = count_deadlocks(model, work(1000), {true, true});
  EXPECT_EQ(count_deadlocks(model, work(1000), {true, false}).exact, both.exact);
  EXPECT_EQ(count_deadlocks(model, work(1000), {false, true}).released, both.released);
  EXPECT_EQ(count_deadlocks(model, work(1000), {true, false}).released, 0);
}

TEST(Study, no_disorder_or_no_synchronization_is_no_deadlock) {
  EXPECT_EQ(count_deadlocks(Model(three_d(Rule::synchronization, 0, 0.1)), work(300), {true, false}).exact,
            0);
  EXPECT_EQ(count_deadlocks(Model(three_d(Rule::synchronization, 0.1, 0)), work(300), {true, false}).exact,
            0);
  EXPECT_EQ(
      estimate_deadlocks(Model(three_d(Rule::synchronization, 0.1, 0)), work(300), Decision::exact).bound, 0);
}

TEST(Study, the_caller_can_stop_it) {
  Work endless = work(std::int64_t{1} << 40);
  endless.rounds = std::int64_t{1} << 24;
  endless.progress = [](std::int64_t) { return false; };
  EXPECT_THROW(count_deadlocks(Model(three_d(Rule::synchronization, 0.01, 0.02)), endless, {true, true}),
               Error);
}

TEST(Shrink, leaves_a_small_deadlock) {
  int deadlocks = 0;
  std::size_t largest = 0;
  for (int seed = 0; seed < 6000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(9, seed);
    const Rule rule = seed % 2 == 0 ? Rule::single_queue : Rule::synchronization;
    const Model model(random_setting(random, rule));
    RoundEvents events(model);
    events.draw(random);
    const Program program = to_program(model, events);
    if (!judge(program, rule).exact) continue;
    ++deadlocks;
    const Shrunk shrunk = shrink(program, rule);
    EXPECT_TRUE(judge(shrunk.program, rule).exact);
    EXPECT_LE(shrunk.program.gpus(), program.gpus());
    for (const auto& gpu : shrunk.program.events) {
      EXPECT_GE(gpu.size(), 2u);
      EXPECT_LE(std::count(gpu.begin(), gpu.end(), kSynchronize), 1);
    }
    largest = std::max(largest, shrunk.program.events.size());
    const Shrunk all = taking_part(program, rule);
    EXPECT_TRUE(judge(all.program, rule).exact);
    EXPECT_EQ(all.gpus.size(), judge(program, rule).blocked.size());
    EXPECT_EQ(judge(all.program, rule).blocked.size(), all.gpus.size());
    EXPECT_TRUE(std::includes(all.gpus.begin(), all.gpus.end(), shrunk.gpus.begin(), shrunk.gpus.end()));
  }
  EXPECT_GT(deadlocks, 500);
  EXPECT_GT(largest, 2u);
}

TEST(Shrink, refuses_what_does_not_deadlock) {
  EXPECT_THROW(shrink({{{0}, {0}}, {{0, 1}}, {0}}, Rule::single_queue), Error);
  EXPECT_THROW(taking_part({{{0}, {0}}, {{0, 1}}, {0}}, Rule::single_queue), Error);
  EXPECT_THROW(judge({{{0}, {}}, {{0, 1}}, {0}}, Rule::single_queue), Error);
}

TEST(Shrink, planted_deadlocks_deadlock) {
  const Model model(three_d(Rule::synchronization, 0.004, 0.004));
  const std::vector<Program> programs = planted_deadlocks(model, work(100'000), 20);
  EXPECT_EQ(programs.size(), 20u);
  for (const Program& program : programs) EXPECT_TRUE(judge(program, Rule::synchronization).exact);
}

}  // namespace
}  // namespace starling::study
