// Goal: a plan's text says all of the plan, and what is no plan's text is refused at the right line and
// column. Method: round trips over every built-in algorithm, byte for byte; a list of spoiled texts.
// sanitize: address (one thread)
#include "plan/text.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "plan/all_plans.h"
#include "plan/builder.h"

namespace starling {
namespace {

TEST(PlanText, RoundTripIsExact) {
  for (const BuiltIn& built_in : built_ins({1, 2, 3, 5, 8, 17}, {1, 2})) {
    SCOPED_TRACE(built_in.name());
    const Plan plan = generate(built_in.algorithm, built_in.request);
    const std::string text = to_text(plan);
    const Plan again = plan_from_text(text);
    EXPECT_EQ(to_text(again), text);
    ASSERT_EQ(again.hash(), plan.hash());
    for (std::uint32_t rank = 0; rank < plan.rank_count(); ++rank) {
      const auto a = plan.part(rank);
      const auto b = again.part(rank);
      ASSERT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end()));
    }
  }
}

// What no built-in has: scratch, dependencies, several chunks, local instructions.
constexpr const char* kCustom = R"(starling-plan 1
name two-blocks
collective all_reduce
ranks 1
root 0
in_place 0
chunks_per_group 4
groups 1 1
rank 0 scratch 2
  block 0
    0 copy input[0:2] -> scratch[0:2] size input[0:2]
    1 nop size output[0] after 1.0
  block 1
    0 copy input[2:4] -> output[2:4] size output[2:4] final
    1 copy scratch[0:2] -> output[0:2] size output[0:2] final after 0.0 0.1
)";

TEST(PlanText, SaysAllOfAHandWrittenPlan) {
  const Plan plan = plan_from_text(kCustom);
  EXPECT_EQ(to_text(plan), kCustom);
  EXPECT_EQ(plan.header(0)->largest_chunks, 2);
  EXPECT_FALSE(plan.header(0)->canonical);
  EXPECT_EQ(plan.header(0)->dependency_count, 3u);
  EXPECT_EQ(plan.block_count(), 2u);
}

// A copy of the neighbour's, and what rank 1 has of both; rank 1's second chunk may hold anything.
constexpr const char* kWithPostcondition = R"(starling-plan 2
name neighbours
collective custom
ranks 2
root 0
in_place 0
chunks_per_group 2
groups 1 1
holds 0 output[0:2] 1.0
holds 1 output[0] *.0
rank 0 scratch 0
  block 0
    0 send input[0:2] -> >1.0 size input[0:2]
    1 recv <1.0 -> output[0:2] size output[0:2]
rank 1 scratch 0
  block 0
    0 send input[0:2] -> >0.0 size input[0:2]
    1 recv_reduce_copy <0.0 input[0:2] -> output[0:2] size output[0:2] final
)";

TEST(PlanText, CarriesThePostcondition) {
  const Plan plan = plan_from_text(kWithPostcondition);
  EXPECT_EQ(to_text(plan), kWithPostcondition);
  ASSERT_TRUE(plan.postcondition());
  EXPECT_EQ(*plan.postcondition(), (Postcondition{{0, 0, 2, {{1, 0}}}, {1, 0, 1, {{kEveryRank, 0}}}}));
}

TEST(PlanText, OfVersionOneIsStillRead) {
  std::string text = kWithPostcondition;
  text.replace(text.find("holds 0"), text.find("rank 0") - text.find("holds 0"), "");
  text.replace(0, 15, "starling-plan 1");
  const Plan plan = plan_from_text(text);
  EXPECT_FALSE(plan.postcondition());
  EXPECT_EQ(to_text(plan), text);
}

TEST(PlanText, CommentsAndBlankLinesAreFree) {
  std::string text = kCustom;
  text.insert(text.find("  block 1"), "\n   # what follows\n\n");
  text.insert(text.find("final") + 5, "   # the end");
  EXPECT_EQ(to_text(plan_from_text(text)), kCustom);
}

std::string refusal(const std::string& text) {
  try {
    plan_from_text(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.what();
  }
  return "";
}

struct Spoiled {
  const char* from;
  const char* to;
  const char* message;
};

TEST(PlanText, AByteOrderMarkMayComeFirst) {
  EXPECT_EQ(to_text(plan_from_text(std::string("\xEF\xBB\xBF") + kCustom)), kCustom);
  EXPECT_THROW(plan_from_text(std::string("\n\xEF\xBB\xBF") + kCustom), Error);
}

TEST(PlanText, SpoiledTextsAreRefusedWhereTheyAreSpoiled) {
  const Spoiled cases[] = {
      {"starling-plan 1", "starling-plan 3", "line 1 column 15: version 3"},
      {"starling-plan", "sterling-plan", "line 1 column 1: 'starling-plan' should stand here"},
      {"collective all_reduce", "collective all_produce", "line 3 column 12"},
      {"ranks 1", "ranks one", "line 4 column 7"},
      {"ranks 1", "ranks 1 1", "nothing should follow here"},
      {"ranks 1", "ranks 4294967295", "4294967295 ranks"},
      {"chunks_per_group 4", "chunks_per_group 0", "0 chunks in a group"},
      {"rank 0", "rank 1", "ranks should follow each other"},
      {"block 1", "block 2", "blocks should follow each other"},
      {"1 nop", "2 nop", "instruction 1 should come here"},
      {"copy", "cpy", "the name of an instruction"},
      {"input[0:2]", "inpt[0:2]", "line 11 column"},
      {"input[0:2] ->", "input[2:0] ->", "chunks should stand here"},
      {"scratch[0:2] size", "scratch[0:3] size", "equally many chunks"},
      {"after 1.0", "after 1", "a dependency should stand here"},
      {"after 1.0", "after", "a dependency should stand here"},
      {"after 1.0", "after 1.0 final", "a dependency should stand here"},
      {"after 0.0 0.1", "after 0.0 0.2", "waits for 0.0 0.2"},
      {"-> scratch[0:2] size", "-> >1.x size", "a connection should stand here"},
      {"nop size output[0]", "nop", "'size' should stand here, not 'after'"},
      {"nop size output[0] after 1.0", "nop", "'size' should stand here, but the line ends"},
  };
  for (const Spoiled& spoiled : cases) {
    std::string text = kCustom;
    const std::size_t at = text.find(spoiled.from);
    ASSERT_NE(at, std::string::npos) << spoiled.from;
    text.replace(at, std::string(spoiled.from).size(), spoiled.to);
    const std::string message = refusal(text);
    EXPECT_NE(message.find(spoiled.message), std::string::npos) << spoiled.to << ": " << message;
  }
}

TEST(PlanText, EveryTruncationIsRefusedOrWhole) {
  const std::string text = to_text(generate("ring", {Collective::kAllReduce, 3, 0, 1, false}));
  for (std::size_t length = 0; length + 1 < text.size(); ++length) {
    const std::string message = refusal(text.substr(0, length));
    // Only the last word of the text may be missing without harm to any other.
    EXPECT_NE(message, "") << length;
  }
}

}  // namespace
}  // namespace starling
