// Goal: counts do not depend on threads, importance sampling is unbiased, shrunk deadlocks deadlock.
// Method: the same rounds on one and three threads; planted estimates against counts and the closed form,
// within five standard errors; every deadlock found in random models is shrunk and judged again.
#include "study/study.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "random_models.h"
#include "study/shrink.h"

namespace starling::study {
namespace {

Work work(std::int64_t rounds, int threads = 1) {
  Work work;
  work.rounds = rounds;
  work.seed = 11;
  work.threads = threads;
  return work;
}

Setting three_d(Rule rule, double disorder, double synchronization) {
  Setting setting;
  setting.rule = rule;
  setting.gpus = 18;
  setting.groups = three_d_groups({3, 3, 2, 40, 90});
  setting.disorder_probability = disorder;
  setting.synchronization_probability = synchronization;
  return setting;
}

Setting one_group(int gpus, int collectives, double disorder) {
  Setting setting;
  setting.gpus = gpus;
  setting.groups = {{{}, collectives}};
  for (int gpu = 0; gpu < gpus; ++gpu) setting.groups[0].gpus.push_back(gpu);
  setting.disorder_probability = disorder;
  return setting;
}

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

TEST(Study, a_single_group_follows_the_closed_form) {
  for (const auto& [gpus, collectives, disorder] :
       {std::tuple{2, 6, 0.5}, std::tuple{3, 4, 0.9}, std::tuple{8, 161, 1e-4}, std::tuple{1, 9, 0.3}}) {
    const Model model(one_group(gpus, collectives, disorder));
    const double expected = single_group_probability(gpus, collectives, disorder);
    const Counts counts = count_deadlocks(model, work(20'000), {true, false});
    const double error = std::sqrt(expected * (1 - expected) / 20'000);
    EXPECT_NEAR(static_cast<double>(counts.exact) / 20'000, expected, 5 * error + 1e-12) << gpus;
    const Estimate estimate = estimate_deadlocks(model, work(20'000), Decision::exact);
    EXPECT_NEAR(estimate.probability, expected, 5 * estimate.standard_error + 1e-12) << gpus;
  }
}

TEST(Study, very_rare_deadlocks_keep_their_digits) {
  const Model model(one_group(8, 161, 1e-12));
  const double expected = single_group_probability(8, 161, 1e-12);
  EXPECT_NEAR(expected, 8 * 160 * 1e-12, 1e-17);
  const Estimate estimate = estimate_deadlocks(model, work(1000), Decision::exact);
  EXPECT_NEAR(estimate.probability, expected, 1e-15);
}

class Planted : public testing::TestWithParam<std::tuple<Rule, Decision, double, double>> {};

TEST_P(Planted, is_unbiased) {
  const auto [rule, decision, disorder, synchronization] = GetParam();
  const Model model(three_d(rule, disorder, synchronization));
  constexpr std::int64_t kRounds = 60'000;
  const Counts counts =
      count_deadlocks(model, work(kRounds), {decision == Decision::exact, decision == Decision::released});
  const double ratio =
      static_cast<double>(decision == Decision::exact ? counts.exact : counts.released) / kRounds;
  const Estimate estimate = estimate_deadlocks(model, work(kRounds / 3), decision);
  const double error = std::hypot(std::sqrt(ratio * (1 - ratio) / kRounds), estimate.standard_error);
  EXPECT_GT(ratio, 0);
  EXPECT_NEAR(estimate.probability, ratio, 5 * error);
  EXPECT_LE(estimate.probability, estimate.bound + 1e-12);
}

INSTANTIATE_TEST_SUITE_P(Models, Planted,
                         testing::Values(std::tuple{Rule::single_queue, Decision::exact, 1e-4, 0.0},
                                         std::tuple{Rule::single_queue, Decision::released, 1e-4, 0.0},
                                         std::tuple{Rule::synchronization, Decision::exact, 0.004, 0.01},
                                         std::tuple{Rule::synchronization, Decision::exact, 0.08, 0.003},
                                         std::tuple{Rule::synchronization, Decision::released, 0.01, 0.003}));

TEST(Study, harmful_turns_predict_rare_ratios) {
  const Model model(three_d(Rule::single_queue, 1e-7, 0));
  const double predicted = 1e-7 * static_cast<double>(harmful_turns(model));
  const Estimate estimate = estimate_deadlocks(model, work(20'000), Decision::exact);
  EXPECT_NEAR(estimate.probability, predicted, 5 * estimate.standard_error);
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
