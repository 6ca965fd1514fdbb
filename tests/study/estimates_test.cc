// Goal: importance sampling is unbiased.
// Method: planted estimates against counts and the closed form, within five standard errors.
// sanitize: no (statistics over many rounds; study_test runs the same code)
#include <gtest/gtest.h>

#include <cmath>

#include "settings.h"

namespace starling::study {
namespace {

Setting one_group(int gpus, int collectives, double disorder) {
  Setting setting;
  setting.gpus = gpus;
  setting.groups = {{{}, collectives}};
  for (int gpu = 0; gpu < gpus; ++gpu) setting.groups[0].gpus.push_back(gpu);
  setting.disorder_probability = disorder;
  return setting;
}

TEST(Estimates, a_single_group_follows_the_closed_form) {
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

TEST(Estimates, very_rare_deadlocks_keep_their_digits) {
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

TEST(Estimates, harmful_turns_predict_rare_ratios) {
  const Model model(three_d(Rule::single_queue, 1e-7, 0));
  const double predicted = 1e-7 * static_cast<double>(harmful_turns(model));
  const Estimate estimate = estimate_deadlocks(model, work(20'000), Decision::exact);
  EXPECT_NEAR(estimate.probability, predicted, 5 * estimate.standard_error);
}

}  // namespace
}  // namespace starling::study
