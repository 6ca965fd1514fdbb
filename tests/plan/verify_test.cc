// Goal: the verifier refuses every kind of wrong plan, and names rank, block, instruction and what is wrong.
// Method: plans in text form, each with one mistake (many are known miscompilations of other systems), and
// the rule that must speak; beside each group a right plan that differs by little.
// sanitize: address (one thread)
#include "plan/verify.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plan/builder.h"
#include "plan/generate.h"
#include "plan/refusals.h"
#include "plan/text.h"

namespace starling {
namespace {

Plan accept(const PlanShape& shape, const std::string& body) { return plan_from_text(text_of(shape, body)); }

const PlanShape kAlone{.ranks = 1};
constexpr PlanShape kPair{};

// ---- instructions
// ----------------------------------------------------------------------------------------------

TEST(Verify, Operands) {
  accept(kAlone, "rank 0 scratch 0\nblock 0\n0 copy input[0] -> output[0] size output[0] final\n");
  EXPECT_REFUSED("source", "needs a source", kAlone,
                 "rank 0 scratch 0\nblock 0\n0 copy -> output[0] size output[0] final\n");
  EXPECT_REFUSED(
      "destination", "takes no destination", kPair,
      "rank 0 scratch 0\nblock 0\n0 send input[0] -> output[0] >1.0 size input[0]\nrank 1 scratch 0\n");
  EXPECT_REFUSED(
      "sends", "takes no connection", kPair,
      "rank 0 scratch 0\nblock 0\n0 copy input[0] -> output[0] >1.0 size input[0]\nrank 1 scratch 0\n");
  EXPECT_REFUSED("receives", "1 to 1 connections", (PlanShape{.ranks = 3}),
                 "rank 0 scratch 0\nblock 0\n0 recv <1.0 <2.0 -> output[0] size output[0]\nrank 1 scratch "
                 "0\nrank 2 scratch 0\n");
  EXPECT_REFUSED("input_is_constant", "writes into the input", kAlone,
                 "rank 0 scratch 0\nblock 0\n0 copy output[0] -> input[0] size output[0]\n");
}

TEST(Verify, Bounds) {
  EXPECT_REFUSED("source_bounds", "input[1], but the buffer has 1 chunks", kAlone,
                 "rank 0 scratch 0\nblock 0\n0 copy input[1] -> output[0] size output[0] final\n");
  EXPECT_REFUSED("destination_bounds", "scratch[4294967295], but the buffer has 2 chunks", kAlone,
                 "rank 0 scratch 2\nblock 0\n0 copy input[0] -> scratch[4294967295] size input[0] final\n");
  EXPECT_REFUSED("size_bounds", "output[7]", kAlone, "rank 0 scratch 0\nblock 0\n0 nop size output[7]\n");
  // The root alone has the output of a reduce.
  EXPECT_REFUSED(
      "destination_bounds",
      "rank 1, block 0, instruction 0: copy has the destination output[0], but the rank has no output",
      (PlanShape{.collective = "reduce"}),
      "rank 0 scratch 0\nrank 1 scratch 0\nblock 0\n0 copy input[0] -> output[0] size input[0]\n");
}

TEST(Verify, OverlappingLocalCopies) {
  const PlanShape shape{.ranks = 1, .chunks_per_group = 3};
  EXPECT_REFUSED("overlap", "they overlap in part", shape,
                 "rank 0 scratch 0\nblock 0\n0 copy output[0:2] -> output[1:3] size output[0:2]\n");
  // In place, the input of rank 1 is the second group of the output.
  const PlanShape gather{.collective = "all_gather", .in_place = 1, .chunks_per_group = 2, .groups = "1 2"};
  EXPECT_REFUSED(
      "overlap", "rank 1, block 0, instruction 0", gather,
      "rank 0 scratch 0\nrank 1 scratch 0\nblock 0\n0 copy input[0:2] -> output[1:3] size output[1:3]\n");
}

TEST(Verify, Dependencies) {
  const std::string second = "block 1\n0 nop size output[0]\n";
  EXPECT_REFUSED("dependencies", "waits for 2.0", kAlone,
                 "rank 0 scratch 0\nblock 0\n0 nop size output[0] after 2.0\n" + second);
  EXPECT_REFUSED("dependencies", "waits for 1.1", kAlone,
                 "rank 0 scratch 0\nblock 0\n0 nop size output[0] after 1.1\n" + second);
  EXPECT_REFUSED(
      "dependencies", "of another block", kAlone,
      "rank 0 scratch 0\nblock 0\n0 nop size output[0]\n1 nop size output[0] after 0.0\n" + second);
}

// ---- connections
// -----------------------------------------------------------------------------------------------

TEST(Verify, TwoBlocksOnOneConnection) {
  const PlanShape shape{.collective = "broadcast", .chunks_per_group = 2};
  EXPECT_REFUSED("one_block_per_connection",
                 "rank 0, block 1: sends on connection 0->1 channel 0, as block 0 does", shape,
                 std::string("rank 0 scratch 0\nblock 0\n0 send input[0] -> >1.0 size input[0]\n") +
                     "block 1\n0 send input[1] -> >1.0 size input[1]\n" +
                     "rank 1 scratch 0\nblock 0\n0 recv <0.0 -> output[0] size output[0]\n1 recv <0.0 -> "
                     "output[1] size output[1]\n");
}

TEST(Verify, EndsOfConnections) {
  const PlanShape shape{.collective = "broadcast"};
  const std::string root =
      "rank 0 scratch 0\nblock 0\n0 copy input[0] -> output[0] size output[0]\n1 send input[0] -> >1.0 size "
      "input[0]\n";
  accept(shape, root + "rank 1 scratch 0\nblock 0\n0 recv <0.0 -> output[0] size output[0]\n");
  EXPECT_REFUSED("one_block_per_connection", "no block receives on connection 0->1 channel 0", shape,
                 root + "rank 1 scratch 0\n");
  EXPECT_REFUSED("equal_counts", "1 messages are sent and 2 received", shape,
                 root +
                     "rank 1 scratch 0\nblock 0\n0 recv <0.0 -> output[0] size output[0]\n1 recv <0.0 -> "
                     "output[0] size output[0]\n");
  EXPECT_REFUSED("peers", "0->2", shape,
                 "rank 0 scratch 0\nblock 0\n0 send input[0] -> >2.0 size input[0]\nrank 1 scratch 0\n");
  EXPECT_REFUSED("peers", "0->0", shape,
                 "rank 0 scratch 0\nblock 0\n0 send input[0] -> >0.0 size input[0]\nrank 1 scratch 0\n");
  EXPECT_REFUSED("channels", "channel 256", shape,
                 "rank 0 scratch 0\nblock 0\n0 send input[0] -> >1.256 size input[0]\nrank 1 scratch 0\n");
}

TEST(Verify, FansThatNoTableHolds) {
  const PlanShape shape{.collective = "broadcast", .ranks = 4, .chunks_per_group = 2};
  const std::string message = refusal(
      shape,
      "rank 0 scratch 0\nblock 0\n0 send input[0] -> >1.0 >2.0 size input[0]\n"
      "1 send input[1] -> >2.0 >1.0 size input[1]\nrank 1 scratch 0\nrank 2 scratch 0\nrank 3 scratch 0\n");
  EXPECT_NE(message.find("in one order"), std::string::npos) << message;
}

// ---- lengths
// ---------------------------------------------------------------------------------------------------

TEST(Verify, LengthsOfOperandsAndMessages) {
  // The last chunk is shorter than the first when the count does not divide.
  const PlanShape shape{.collective = "broadcast", .ranks = 2, .chunks_per_group = 2};
  EXPECT_REFUSED(
      "operand_length", "output[1], as long as chunk 1, but takes its length from output[0]", shape,
      "rank 0 scratch 0\nblock 0\n0 copy input[0] -> output[1] size output[0]\nrank 1 scratch 0\n");
  EXPECT_REFUSED("message_length",
                 "rank 1, block 0, instruction 0: recv receives a message as long as its output[1], which "
                 "rank 0 block 0 instruction 0 sends",
                 shape,
                 "rank 0 scratch 0\nblock 0\n0 send input[0] -> >1.0 size input[0]\n"
                 "rank 1 scratch 0\nblock 0\n0 recv <0.0 -> output[1] size output[1]\n");
  EXPECT_REFUSED("message_length", "input[0:2]", shape,
                 "rank 0 scratch 0\nblock 0\n0 send input[0:2] -> >1.0 size input[0:2]\n"
                 "rank 1 scratch 0\nblock 0\n0 recv <0.0 -> output[0] size output[0]\n");
}

// Scratch has room for any chunk; what it holds is as long as it was written.
TEST(Verify, ScratchThatHoldsLessThanIsReadOfIt) {
  const PlanShape shape{.ranks = 1, .chunks_per_group = 2};
  const auto by_way_of = [](const char* length) {
    return std::string("rank 0 scratch 2\nblock 0\n0 copy input[0] -> scratch[0] size input[0] final\n") +
           "1 copy scratch[0] -> scratch[1] size " + length + "\n" +
           "2 copy scratch[1] -> output[0] size output[0]\n" +
           "3 copy input[1] -> output[1] size output[1] final\n";
  };
  accept(shape, by_way_of("output[0]"));
  accept(shape, by_way_of("scratch[0]"));
  EXPECT_REFUSED(
      "held_length",
      "rank 0, block 0, instruction 2: copy reads scratch[1] as long as chunk 0, but what lies there is "
      "as long as chunk 1",
      shape, by_way_of("output[1]"));
  // Likewise of what comes in a message, and of a collective whose outputs take other chunks than their own.
  EXPECT_REFUSED("held_length", "rank 1, block 0, instruction 1: copy reads scratch[0]",
                 (PlanShape{.collective = "broadcast", .ranks = 2, .chunks_per_group = 2}),
                 "rank 0 scratch 1\nblock 0\n0 copy input[0] -> scratch[0] size input[0]\n"
                 "1 send scratch[0] -> >1.0 size input[1]\n2 send input[1] -> >1.0 size input[1]\n"
                 "3 copy input[0:2] -> output[0:2] size input[0:2]\nrank 1 scratch 1\nblock 0\n"
                 "0 recv <0.0 -> scratch[0] size output[1]\n1 copy scratch[0] -> output[0] size output[0]\n"
                 "2 recv <0.0 -> output[1] size output[1]\n");
  const std::string moved = refusal_of(
      "starling-plan 2\nname test\ncollective custom\nranks 1\nroot 0\nin_place 0\nchunks_per_group 2\n"
      "groups 1 1\nholds 0 output[0] 0.1\nrank 0 scratch 1\nblock 0\n"
      "0 copy input[1] -> scratch[0] size input[1]\n1 copy scratch[0] -> output[0] size output[0]\n");
  EXPECT_NE(moved.find("instruction 1: copy reads scratch[0] as long as chunk 0"), std::string::npos)
      << moved;
}

// A rank that forwards another's part names its length after its own part: right if all parts are equally
// long.
TEST(Verify, PlansForEqualPartsAloneAreMarked) {
  const PlanShape shape{.collective = "gather", .ranks = 3, .groups = "1 3"};
  const Plan plan = accept(shape, R"(rank 0 scratch 0
block 0
0 copy input[0] -> output[0] size output[0]
1 recv <1.0 -> output[1] size output[1]
2 recv <1.0 -> output[2] size output[2]
rank 1 scratch 0
block 0
0 send input[0] -> >0.0 size input[0]
1 recv_send <2.0 -> >0.0 size input[0]
rank 2 scratch 0
block 0
0 send input[0] -> >1.0 size input[0]
)");
  EXPECT_TRUE(plan.header(0)->uniform_only);
  EXPECT_FALSE(generate("direct", {Collective::kGather, 3}).header(0)->uniform_only);
}

// A rank knows its own counts of an all_to_all, so its scratch may be larger than its peer's.
TEST(Verify, ScratchOfTwoRanksDiffersWhereCountsDo) {
  const auto exchanged = [](const char* sent, const char* received) {
    std::string body;
    for (int rank = 0; rank < 2; ++rank) {
      const std::string own = std::to_string(rank), peer = std::to_string(1 - rank);
      body += "rank " + own + " scratch 2\nblock 0\n0 copy input[" + own + "] -> output[" + own +
              "] size input[" + own + "]\n1 copy input[" + peer + "] -> scratch[0] size input[" + peer +
              "]\n2 send scratch[0] -> >" + peer + ".0 size " + (sent + peer) + "]\n3 recv <" + peer +
              ".0 -> scratch[1] size " + (received + peer) + "]\n4 copy scratch[1] -> output[" + peer +
              "] size output[" + peer + "]\n";
    }
    return body;
  };
  const PlanShape shape{.collective = "all_to_all", .groups = "2 2"};
  EXPECT_FALSE(accept(shape, exchanged("input[", "output[")).header(0)->uniform_only);
  EXPECT_TRUE(accept(shape, exchanged("scratch[", "scratch[")).header(0)->uniform_only);
}

// ---- deadlock
// --------------------------------------------------------------------------------------------------

TEST(Verify, CrossedSendsNeedASlotEach) {
  EXPECT_EQ(accept(shape_of_exchange(1), exchange(1)).header(0)->minimum_slots, 1);
  EXPECT_EQ(accept(shape_of_exchange(2), exchange(2)).header(0)->minimum_slots, 2);
  EXPECT_EQ(accept(shape_of_exchange(8), exchange(8)).header(0)->minimum_slots, 8);
  EXPECT_REFUSED("deadlock", "even with 8 slots, for one of the 8 slots of connection 0->1 channel 0",
                 shape_of_exchange(9), exchange(9));
}

TEST(Verify, CycleAcrossRanks) {
  const PlanShape shape{.ranks = 3};
  std::string body;
  for (int rank = 0; rank < 3; ++rank) {
    body += "rank " + std::to_string(rank) + " scratch 0\nblock 0\n0 recv_reduce_copy_send <" +
            std::to_string((rank + 2) % 3) + ".0 input[0] -> output[0] >" + std::to_string((rank + 1) % 3) +
            ".0 size output[0] final\n";
  }
  EXPECT_REFUSED("deadlock",
                 "rank 0, block 0, instruction 0: recv_reduce_copy_send waits for ever, with any number of "
                 "slots, for a message 0 on connection 2->0",
                 shape, body);
}

TEST(Verify, CycleOfDependencies) {
  EXPECT_REFUSED("deadlock", "an instruction of another block: 1.1", kAlone,
                 "rank 0 scratch 0\nblock 0\n0 nop size output[0] after 1.1\n1 copy input[0] -> output[0] "
                 "size output[0] final\n"
                 "block 1\n0 nop size output[0] after 0.1\n1 nop size output[0]\n");
}

// ---- results
// ---------------------------------------------------------------------------------------------------

std::string alone(const char* steps) { return std::string("rank 0 scratch 1\nblock 0\n") + steps; }

TEST(Verify, WrongResultsAreNamed) {
  EXPECT_REFUSED("uninitialised",
                 "rank 0, block 0, instruction 0: copy reads scratch[0] before anything wrote it", kAlone,
                 alone("0 copy scratch[0] -> output[0] size output[0] final\n"));
  EXPECT_REFUSED("postcondition", "output[0] holds nothing; it should hold input[0] of every rank", kAlone,
                 alone(""));
  EXPECT_REFUSED("postcondition", "output[0] holds rank 0 input[0] + rank 0 input[0]; it should", kAlone,
                 alone("0 copy input[0] -> output[0] size output[0]\n1 reduce input[0] -> output[0] size "
                       "output[0] final\n"));
}

TEST(Verify, EveryReductionIsFinishedOnce) {
  EXPECT_REFUSED("final_missing", "output[0] was never final", kAlone,
                 alone("0 copy input[0] -> output[0] size output[0]\n"));
  EXPECT_REFUSED("final_once", "avg would divide twice", kAlone,
                 alone("0 copy input[0] -> output[0] size output[0] final\n1 copy output[0] -> output[0] "
                       "size output[0] final\n"));
  EXPECT_REFUSED("final_is_last", "already finished", kAlone,
                 alone("0 copy input[0] -> output[0] size output[0] final\n1 reduce input[0] -> output[0] "
                       "size output[0]\n"));
  EXPECT_REFUSED("final", "no result of a reduction", (PlanShape{.collective = "broadcast", .ranks = 1}),
                 alone("0 copy input[0] -> output[0] size output[0] final\n"));
}

// premul_sum multiplies what is read as input: every contribution once.
TEST(Verify, InPlaceContributionsAreReadAsInputOnce) {
  const PlanShape in_place{.ranks = 1, .in_place = 1};
  EXPECT_REFUSED("input_overwritten", "read the output", in_place,
                 alone("0 copy input[0] -> output[0] size output[0]\n1 copy input[0] -> output[0] size "
                       "output[0] final\n"));
  EXPECT_REFUSED("postcondition", "premul_sum would not multiply it", in_place,
                 alone("0 copy output[0] -> output[0] size output[0] final\n"));
}

std::string exchange_sums(const char* operands_of_rank_1) {
  return std::string("rank 0 scratch 0\nblock 0\n0 send input[0] -> >1.0 size input[0]\n") +
         "1 recv_reduce_copy input[0] <1.0 -> output[0] size output[0] final\n" +
         "rank 1 scratch 0\nblock 0\n0 send input[0] -> >0.0 size input[0]\n1 recv_reduce_copy " +
         operands_of_rank_1 + " -> output[0] size output[0] final\n";
}

// Rank 1 gets the sum of both inputs, rank 0 rank 1's: two ranks, two chunks.
constexpr const char* kSums = R"(rank 0 scratch 0
  block 0
    0 send input[0:2] -> >1.0 size input[0:2]
    1 recv <1.0 -> output[0:2] size output[0:2]
rank 1 scratch 0
  block 0
    0 send input[0:2] -> >0.0 size input[0:2]
    1 recv_reduce_copy <0.0 input[0:2] -> output[0:2] size output[0:2] final
)";

std::string custom_text(const std::string& postcondition) {
  std::string text = text_of({.collective = "custom", .chunks_per_group = 2}, postcondition + kSums);
  text[std::string("starling-plan ").size()] = '2';
  return text;
}

std::string refusal_of_custom(const std::string& postcondition) {
  try {
    plan_from_text(custom_text(postcondition));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Verify, CustomResultsAreThoseOfThePostcondition) {
  for (const char* right :
       {"", "holds 0 output[0:2] 1.0\n", "holds 1 output[0:2] *.0\n", "holds 1 output[1] 1.1 0.1\n",
        "holds 0 output[0] 1.0\nholds 0 output[1] 1.1\nholds 1 output[0:2] 0.0 1.0\n"})
    EXPECT_EQ(refusal_of_custom(right), "");
  const auto expect = [](const char* postcondition, const char* words) {
    const std::string message = refusal_of_custom(postcondition);
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  expect("holds 0 output[0:2] 1.1\n", "output[0:2] to hold input[1:3], but the input has 2 chunks");
  expect("holds 0 output[0] 1.1\n",
         "rank 0: output[0] holds rank 1 input[0]; it should hold rank 1 input[1] (rule postcondition)");
  expect("holds 1 output[0] 1.0\n",
         "holds rank 0 input[0] + rank 1 input[0]; it should hold rank 1 input[0]");
  expect("holds 1 output[0] 1.0 1.0\n", "(rule postcondition)");
  expect("holds 0 output[1] *.1\n", "it should hold input[1] of every rank, once each");
  expect("holds 2 output[1] *.1\n", "of a rank that is not there");
  expect("holds 0 output[1:3] *.0\n", "the output has 2 chunks");
  expect("holds 0 output[1] 2.0\n", "a chunk of rank 2 of 2");
  expect("holds 0 output[0:2] 1.0\nholds 0 output[1] 1.1\n", "names output[1] twice");
  expect("holds 0 output[0]\n", "an input chunk should stand here");
  expect("holds 0 input[0] 1.0\n", "chunks of the output should stand here");
}

TEST(Verify, AllRanksReduceInOneOrder) {
  accept(kPair, exchange_sums("<0.0 input[0]"));
  EXPECT_REFUSED("same_order", "rank 1: output[0] is reduced in another order than on rank 0", kPair,
                 exchange_sums("input[0] <0.0"));
}

TEST(Verify, InPlaceAllToAllThatForwardsWhatItReceived) {
  const auto body = std::string("rank 0 scratch 0\nblock 0\n0 recv <1.0 -> output[1] size output[1]\n") +
                    "1 send input[1] -> >1.0 size input[1]\n" +
                    "rank 1 scratch 0\nblock 0\n0 send input[0] -> >0.0 size input[0]\n1 recv <0.0 -> "
                    "output[0] size output[0]\n";
  EXPECT_REFUSED("postcondition", "rank 1: output[0] holds rank 1 input[0]; it should hold rank 0 input[1]",
                 (PlanShape{.collective = "all_to_all", .in_place = 1, .groups = "2 2"}), body);
}

// Tile t of a slice of two chunks is tile t of each chunk.
TEST(Verify, SlicesOfDifferentShapeExchangeData) {
  const PlanShape shape{.collective = "broadcast", .ranks = 1, .chunks_per_group = 2};
  const std::string whole = "rank 0 scratch 2\nblock 0\n0 copy input[0:2] -> scratch[0:2] size input[0:2]\n";
  EXPECT_EQ(refusal(shape, whole + "1 copy scratch[0:2] -> output[0:2] size output[0:2]\n"), "");
  const std::string first = whole + "1 copy scratch[0] -> output[0] size output[0]\n";
  EXPECT_EQ(refusal(shape, first + "2 copy scratch[1] -> output[1] size output[1]\n"), "");
  EXPECT_REFUSED("postcondition", "output[1] holds nothing", shape, first);
}

// ---- parts
// -----------------------------------------------------------------------------------------------------

std::string refusal_of_parts(std::vector<std::span<const std::byte>> parts) {
  try {
    Plan::from_parts("parts", parts);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Verify, PartsMustBelongTogether) {
  const Plan plan = generate("ring", {Collective::kAllReduce, 2});
  const Plan other = generate("ring", {Collective::kAllReduce, 2, 0, 2});
  const Plan in_place = generate("ring", {Collective::kAllReduce, 2, 0, 1, true});
  EXPECT_EQ(refusal_of_parts({plan.part(0), plan.part(1)}), "");
  EXPECT_NE(refusal_of_parts({plan.part(1), plan.part(0)}).find("(rule parts)"), std::string::npos);
  EXPECT_NE(refusal_of_parts({plan.part(0)}).find("(rule parts)"), std::string::npos);
  EXPECT_NE(refusal_of_parts({plan.part(0), other.part(1)}).find("chunks_per_group is 4, on rank 0 it is 2"),
            std::string::npos);
  EXPECT_NE(refusal_of_parts({plan.part(0), in_place.part(1)}).find("(rule shared_fields)"),
            std::string::npos);
}

}  // namespace
}  // namespace starling
