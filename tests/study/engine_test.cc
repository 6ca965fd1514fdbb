// Goal: the fast engine and the plain judge reach the same verdict on every round.
// Method: tens of thousands of small random models; one round each is judged from its sparse events and,
// event by event, from the explicit sequences; a failure names its seed.
// sanitize: address (one thread)
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "random_models.h"
#include "study/program.h"
#include "study/round.h"

namespace starling::study {
namespace {

#ifdef STARLING_SANITIZED
constexpr int kModels = 1'000;
#else
constexpr int kModels = 20'000;
#endif

class Engine : public testing::TestWithParam<Rule> {};

TEST_P(Engine, agrees_with_the_plain_judge) {
  int exact = 0;
  int released = 0;
  for (int seed = 0; seed < kModels; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(7, seed);
    const Model model(random_setting(random, GetParam()));
    RoundEvents events(model);
    events.draw(random);
    const Verdict fast = RoundJudge(model).judge(events, {true, true});
    const Judgement plain = judge(to_program(model, events), GetParam());
    ASSERT_EQ(fast.exact, plain.exact);
    ASSERT_EQ(fast.released, plain.released);
    exact += plain.exact;
    released += plain.released;
  }
  EXPECT_GT(exact, kModels / 20);  // the models are interesting
  EXPECT_LT(exact, kModels * 19 / 20);
  EXPECT_GT(released, kModels / 20);
}

INSTANTIATE_TEST_SUITE_P(Rules, Engine, testing::Values(Rule::single_queue, Rule::synchronization));

// The released check of the synchronization model is a necessary condition of a cycle.
TEST(Engine, a_cycle_is_always_reported_by_the_released_synchronization_check) {
  for (int seed = 0; seed < kModels; ++seed) {
    Random random(8, seed);
    const Model model(random_setting(random, Rule::synchronization));
    RoundEvents events(model);
    events.draw(random);
    const Verdict verdict = RoundJudge(model).judge(events, {true, true});
    ASSERT_TRUE(verdict.released || !verdict.exact) << "seed " << seed;
  }
}

TEST(Engine, events_follow_their_probabilities) {
  Setting setting;
  setting.rule = Rule::synchronization;
  setting.gpus = 2;
  setting.groups = {{{0, 1}, 500}};
  setting.disorder_probability = 0.02;
  setting.synchronization_probability = 0.03;
  const Model model(setting);
  RoundEvents events(model);
  constexpr int kRounds = 4000;
  double passes = 0;
  double synchronizations = 0;
  double passed_elements = 0;
  for (int round = 0; round < kRounds; ++round) {
    Random random(3, round);
    events.draw(random);
    for (int gpu = 0; gpu < 2; ++gpu) {
      passes += events.at(gpu).passing_turns;
      synchronizations += static_cast<double>(events.at(gpu).synchronizations.size());
      for (const Span& span : events.at(gpu).spans) passed_elements += span.end - span.begin;
    }
  }
  const double turns = kRounds * 2 * 499.0;
  EXPECT_NEAR(passes / turns, 0.02, 5 * std::sqrt(0.02 / turns));
  const double cuts = kRounds * 2 * 500.0;
  EXPECT_NEAR(synchronizations / cuts, 0.03 / 0.97, 5 * std::sqrt(0.03 / cuts));
  EXPECT_GT(passed_elements, 2 * passes * 0.98);
}

// The paper's Fig. 1(c) and 1(d): two GPUs, two collectives in opposite orders.
TEST(Engine, knows_the_basic_situations) {
  const Program opposite{{{0, 1}, {1, 0}}, {{0, 1}, {0, 1}}, {0, 1}};
  EXPECT_TRUE(judge(opposite, Rule::single_queue).exact);
  EXPECT_FALSE(judge(opposite, Rule::synchronization).exact);
  const Program synchronized{{{0, kSynchronize, 1}, {1, kSynchronize, 0}}, {{0, 1}, {0, 1}}, {0, 1}};
  EXPECT_TRUE(judge(synchronized, Rule::synchronization).exact);
  const Program one_synchronizes{{{0, kSynchronize, 1}, {1, 0, kSynchronize}}, {{0, 1}, {0, 1}}, {0, 1}};
  EXPECT_FALSE(judge(one_synchronizes, Rule::synchronization).exact);
}

// The paper's Fig. 2: A and B wait on GPU 0, B and C on 1, ... and D comes full circle.
TEST(Engine, knows_figure_2) {
  enum { A, B, C, D };
  const Program figure{
      {{A, kSynchronize, D}, {B, kSynchronize, A}, {C, kSynchronize, B}, {D, kSynchronize, C}},
      {{0, 1}, {1, 2}, {2, 3}, {3, 0}},
      {0, 1, 2, 3}};
  const Judgement judgement = judge(figure, Rule::synchronization);
  EXPECT_TRUE(judgement.exact);
  EXPECT_TRUE(judgement.released);
  EXPECT_EQ(judgement.blocked.size(), 4u);
}

// Where the released check errs: GPU 0 is ahead of GPU 1 and behind GPU 2, both suspended, but nothing is in
// a circle. GPU 3 comes late, and with it everything resolves.
TEST(Engine, the_released_check_reports_what_is_no_cycle) {
  enum { Ahead, Behind, Late };
  const Program line{{{kSynchronize, Ahead, kSynchronize, Behind},
                      {Late, kSynchronize, Ahead},
                      {Behind, kSynchronize},
                      {kSynchronize, kSynchronize, kSynchronize, Late}},
                     {{0, 1}, {0, 2}, {1, 3}},
                     {0, 1, 2}};
  const Judgement judgement = judge(line, Rule::synchronization);
  EXPECT_FALSE(judgement.exact);
  EXPECT_TRUE(judgement.released);
}

}  // namespace
}  // namespace starling::study
