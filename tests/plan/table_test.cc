// Goal: a table of choices says the same to every reader: rows by topology, collective, place, type class and
// rising sizes; what is wrong in it is refused with its line; plans in it are proved. Method: texts, right
// and wrong; what lower() makes of an operation with and without a table.
// sanitize: address (one thread)
#include "plan/table.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/lowering.h"
#include "plan/generate.h"
#include "plan/refusals.h"
#include "plan/text.h"

namespace starling {
namespace {

const Topology kHere{false, true, 4, 4, 2, 8};

// `text` after the line that names kHere.
std::string table_of(const std::string& text) {
  return "starling-table 1\ntopology " + kHere.name() + "\n" + text;
}

std::string quoted(const Plan& plan) {
  std::string text = "plan " + plan.name() + "\n", line;
  for (const char c : to_text(plan)) {
    line += c;
    if (c != '\n') continue;
    text += "| " + line;
    line.clear();
  }
  return text;
}

PlanUse use_of(Collective collective, bool in_place = false, std::uint32_t root = 0) {
  return {collective, 4, root, in_place};
}

void expect_refused(const std::string& text, const std::string& why) {
  try {
    ChoiceTable::parse(text, "some.txt").at(kHere);
    FAIL() << "taken: " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
  }
}

TEST(ChoiceTable, NamesTopologies) {
  EXPECT_EQ(kHere.name(), "cpu:threads:ranks=4:per_host=4:blocks=2:cores=8");
  EXPECT_EQ((Topology{true, false, 2, 2, 32, 8}.name()), "cuda:processes:ranks=2:per_host=2:blocks=32");
}

TEST(ChoiceTable, FindsTheRowOfASize) {
  const ChoiceTable table =
      ChoiceTable::parse(table_of("  to 64 all_reduce separate plain built_in one_shot 1  # 3.5 us\n"
                                  "  to 64 all_reduce separate half built_in two_shot 1\n"
                                  "  to 4096 all_reduce separate plain built_in ring 2\n"
                                  "topology elsewhere\n"
                                  "  to 9 all_reduce separate plain built_in ring 1\n"),
                         "some.txt");
  EXPECT_EQ(table.topologies().size(), 2u);
  EXPECT_EQ(table.at({true, true, 4, 4, 2, 8}), nullptr);
  const auto here = table.at(kHere);
  ASSERT_NE(here, nullptr);
  EXPECT_EQ(here->size(), 3u);
  const PlanUse use = use_of(Collective::kAllReduce);
  EXPECT_EQ(here->find(use, TypeClass::kPlain, 1)->algorithm, "one_shot");
  EXPECT_EQ(here->find(use, TypeClass::kPlain, 64)->algorithm, "one_shot");
  EXPECT_EQ(here->find(use, TypeClass::kPlain, 65)->algorithm, "ring");
  EXPECT_EQ(here->find(use, TypeClass::kPlain, 65)->block_count, 2u);
  EXPECT_EQ(here->find(use, TypeClass::kHalf, 64)->algorithm, "two_shot");
  EXPECT_EQ(here->find(use, TypeClass::kPlain, 4097), nullptr);
  EXPECT_EQ(here->find(use_of(Collective::kAllReduce, true), TypeClass::kPlain, 64), nullptr);
  EXPECT_EQ(here->find(use_of(Collective::kReduce), TypeClass::kPlain, 64), nullptr);
}

TEST(ChoiceTable, RefusesWhatIsWrongWithItsLine) {
  expect_refused("", "line 1: it is empty");
  expect_refused("starling-table 7\n", "line 1");
  expect_refused("starling-table 1\nto 64 all_reduce separate plain built_in ring 1\n", "line 2");
  expect_refused(table_of("topology " + kHere.name() + "\n"), "line 3");
  expect_refused(table_of("to 64 all_reduce separate plain built_in ring 1\n"
                          "to 64 all_reduce separate plain built_in ring 1\n"),
                 "line 4: sizes do not rise: the row before goes to 64 bytes");
  expect_refused(table_of("to 64 all_reduce separate plain built_in fast 1\n"),
                 "line 3: all_reduce over 4 ranks has no algorithm 'fast'");
  for (const char* row :
       {"to x all_reduce separate plain built_in ring 1", "to 64 all_reduce apart plain built_in ring 1",
        "to 64 all_reduce separate fast built_in ring 1", "to 64 all_reduce separate plain built_in ring 0",
        "to 64 all_reduce separate plain built_in ring", "to 64 send_recv separate moved built_in direct 1",
        "| starling-plan 1"})
    expect_refused(table_of(std::string(row) + "\n"), "line 3");
}

TEST(ChoiceTable, ProvesItsPlans) {
  const std::string row = "to 64 all_reduce separate plain plan ring\n";
  const std::string plan = quoted(generate("ring", {Collective::kAllReduce, 4}));
  EXPECT_EQ(ChoiceTable::parse(table_of(row + plan), "some.txt").at(kHere)->size(), 1u);
  expect_refused(table_of(row), "line 3: there is no plan ring");
  expect_refused(table_of("to 64 all_gather separate moved plan ring\n" + plan),
                 "line 3: plan ring computes all_reduce");
  expect_refused(table_of(row + quoted(generate("ring", {Collective::kAllReduce, 3}))), "over 3 ranks");
  expect_refused(table_of(row + quoted(generate("ring", {Collective::kAllReduce, 4, 0, 3}))),
                 "more than 2 blocks");
  std::string broken = plan;
  broken.replace(broken.find(" final"), 6, "");
  expect_refused(table_of(row + broken), "line 4: ");
}

TEST(ChoiceTable, RefusesPlansThatNeedMoreSlotsThanLanesHave) {
  const Topology two{false, true, 2, 2, 2, 8};
  const std::string head =
      "starling-table 1\ntopology " + two.name() + "\nto 64 all_to_all separate moved plan test\n";
  const auto table = [&](int messages) {
    const Plan plan = plan_from_text(text_of(shape_of_exchange(messages), exchange(messages)));
    return ChoiceTable::parse(head + quoted(plan), "some.txt");
  };
  EXPECT_EQ(table(2).at(two)->size(), 1u);
  try {
    table(3).at(two);
    FAIL() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_NE(std::string(error.what())
                  .find("line 4: plan 'test' needs 3 slots on a connection to finish; "
                        "lanes have 2; remedy: compile its program with slots=2"),
              std::string::npos)
        << error.what();
  }
}

TEST(ChoiceTable, NamesTiles) {
  const std::string row = "to 64 all_reduce separate plain built_in ";
  const auto table = ChoiceTable::parse(table_of(row + "ring@4096 2\n"), "some.txt").at(kHere);
  PlanCache plans;
  LoweringContext context{0, 4, 2, &plans};
  context.table = table.get();
  float input[16], output[16];
  starling_operation call{};
  call.struct_bytes = sizeof call;
  call.kind = STARLING_ALL_REDUCE;
  call.data_type = STARLING_FLOAT32;
  call.input = input;
  call.output = output;
  call.count = 16;
  EXPECT_EQ(lower(context, call).plan->header(0)->tile_bytes, 4096u);
  expect_refused(table_of(row + "ring@4095 2\n"), "line 3: all_reduce over 4 ranks has no algorithm");
}

TEST(ChoiceTable, DecidesWhatNobodyElseHas) {
  std::string own = to_text(generate("one_shot", {Collective::kAllReduce, 4}));
  own.replace(own.find("name one_shot"), 13, "name own");
  const auto table = ChoiceTable::parse(table_of("to 64 all_reduce separate plain built_in ring 2\n"
                                                 "to 4096 all_reduce separate plain plan own\n"
                                                 "to 64 broadcast separate moved plan direct\n" +
                                                 quoted(plan_from_text(own)) +
                                                 quoted(generate("direct", {Collective::kBroadcast, 4}))),
                                        "some.txt")
                         .at(kHere);
  PlanCache plans;
  LoweringContext context{0, 4, 2, &plans};
  float input[2048], output[2048];
  starling_operation call{};
  call.struct_bytes = sizeof call;
  call.kind = STARLING_ALL_REDUCE;
  call.data_type = STARLING_FLOAT32;
  call.input = input;
  call.output = output;
  const auto plan_of = [&](size_t count) {
    call.count = count;
    return lower(context, call).plan;
  };
  const std::string before = plan_of(16)->name();
  ASSERT_NE(before, "ring");
  context.table = table.get();
  EXPECT_EQ(plan_of(16)->name(), "ring");
  EXPECT_EQ(plan_of(16)->block_count(), 2u);
  EXPECT_EQ(plan_of(17)->name(), "own");
  EXPECT_NE(plan_of(2000)->name(), "own");
  call.data_type = STARLING_BFLOAT16;
  EXPECT_EQ(plan_of(16)->name(), before);
  call.data_type = STARLING_FLOAT32;
  call.algorithm = "two_shot";
  EXPECT_EQ(plan_of(16)->name(), "two_shot");
  // A plan is for one root; at another the library chooses.
  call.algorithm = nullptr;
  call.kind = STARLING_BROADCAST;
  EXPECT_EQ(plan_of(16)->root(), 0u);
  call.root = 1;
  EXPECT_EQ(plan_of(16)->root(), 1u);
}

}  // namespace
}  // namespace starling
