// Goal: the C API of plans gives texts, verdicts and names, and answers misuse with a status and a message.
// Method: every function, right and wrong.
// sanitize: address (one thread)
#include <gtest/gtest.h>
#include <starling/plan.h>

#include <string>

namespace {

TEST(PlanApi, GeneratesAndVerifies) {
  char* text = nullptr;
  ASSERT_EQ(starling_plan_generate("all_reduce", "ring", 4, 0, 2, 0, &text), STARLING_SUCCESS);
  ASSERT_NE(text, nullptr);
  uint32_t minimum_slots = 0;
  int equal_parts_only = 1;
  EXPECT_EQ(starling_plan_verify(text, &minimum_slots, &equal_parts_only), STARLING_SUCCESS);
  EXPECT_EQ(minimum_slots, 2u);
  EXPECT_EQ(equal_parts_only, 0);
  EXPECT_EQ(starling_plan_verify(text, nullptr, nullptr), STARLING_SUCCESS);
  std::string broken = text;
  broken.replace(broken.find(" final"), 6, "");
  EXPECT_EQ(starling_plan_verify(broken.c_str(), nullptr, nullptr), STARLING_INVALID_ARGUMENT);
  EXPECT_NE(std::string(starling_last_error()).find("rule final_missing"), std::string::npos)
      << starling_last_error();
  starling_plan_free(text);
  starling_plan_free(nullptr);
}

TEST(PlanApi, NamesAlgorithms) {
  char* names = nullptr;
  ASSERT_EQ(starling_plan_algorithms("all_reduce", &names), STARLING_SUCCESS);
  EXPECT_STREQ(
      names,
      "ring one_shot two_shot one_shot_packets two_shot_packets one_shot_pull two_shot_pull two_shot_put "
      "ring_put halving_doubling double_tree hierarchical rails leaders");
  starling_plan_free(names);
}

TEST(PlanApi, AnswersMisuse) {
  char* text = reinterpret_cast<char*>(1);
  EXPECT_EQ(starling_plan_generate("all_produce", "ring", 4, 0, 1, 0, &text), STARLING_INVALID_ARGUMENT);
  EXPECT_EQ(text, nullptr);
  EXPECT_NE(std::string(starling_last_error()).find("all_produce"), std::string::npos);
  EXPECT_EQ(starling_plan_generate(nullptr, "ring", 4, 0, 1, 0, &text), STARLING_INVALID_ARGUMENT);
  EXPECT_EQ(starling_plan_generate("all_reduce", nullptr, 4, 0, 1, 0, &text), STARLING_INVALID_ARGUMENT);
  EXPECT_EQ(starling_plan_generate("all_reduce", "ring", 4, 0, 1, 0, nullptr), STARLING_INVALID_ARGUMENT);
  EXPECT_EQ(starling_plan_generate("all_reduce", "one_shot", 17, 0, 1, 0, &text), STARLING_INVALID_ARGUMENT);
  EXPECT_EQ(starling_plan_verify(nullptr, nullptr, nullptr), STARLING_INVALID_ARGUMENT);
  EXPECT_EQ(starling_plan_verify("", nullptr, nullptr), STARLING_INVALID_ARGUMENT);
  EXPECT_EQ(starling_plan_algorithms("all_reduce", nullptr), STARLING_INVALID_ARGUMENT);
}

}  // namespace
