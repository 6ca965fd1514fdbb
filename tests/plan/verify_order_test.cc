// Goal: the verifier refuses plans in which what must come one after the other is not ordered: blocks that
// share a chunk (verify_races.cc), and slices that peers read where they lie (verify_pulls.cc).
// Method: plans in text form that lack one edge, and beside each a right plan that differs by little.
// sanitize: address (one thread)
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "plan/generate.h"
#include "plan/refusals.h"
#include "plan/text.h"

namespace starling {
namespace {

const PlanShape kAlone{.ranks = 1};

// ---- blocks that share a chunk
// ----------------------------------------------------------------------------------------------

TEST(VerifyOrder, BlocksThatShareAChunkMustBeOrdered) {
  const auto body = [](const char* first_flag, const char* second_flag) {
    return std::string(
               "rank 0 scratch 1\nblock 0\n0 copy input[0] -> scratch[0] size input[0]\n1 nop size "
               "output[0]\nblock 1\n0 copy scratch[0] -> output[0] size output[0] final") +
           first_flag + "\n" + second_flag;
  };
  EXPECT_FALSE(plan_from_text(text_of(kAlone, body(" after 0.0", ""))).header(0)->canonical);
  EXPECT_REFUSED("race",
                 "block 0 instruction 0 (copy) writes and block 1 instruction 0 (copy) reads scratch[0]",
                 kAlone, body("", ""));
}

// Who waits for one instruction knows nothing of the next.
TEST(VerifyOrder, ADependencyOrdersWhatItNamesAndNoMore) {
  const auto body = [](const char* waits_for) {
    return std::string(
               "rank 0 scratch 1\nblock 0\n0 nop size output[0]\n1 copy input[0] -> scratch[0] size "
               "input[0]\n2 nop size output[0]\nblock 1\n0 copy scratch[0] -> output[0] size output[0] final "
               "after 0.") +
           waits_for + "\n";
  };
  EXPECT_REFUSED("race", "scratch[0]", kAlone, body("0"));
  EXPECT_EQ(refusal(kAlone, body("1")), "");
  EXPECT_EQ(refusal(kAlone, body("2")), "");
}

// Rank 0's block 0 writes scratch[0], then sends chunk `carrier` through rank 1 to block 1, which then reads
// scratch[0].
std::string ordered_by_message(const std::string& carrier) {
  const std::string size = " size output[" + carrier + "]\n";
  return "rank 0 scratch 2\nblock 0\n0 copy input[0] -> scratch[0] size input[0]\n1 send input[" + carrier +
         "] -> >1.0 size input[" + carrier + "]\n2 copy input[1] -> output[1] size output[1]\n" +
         "block 1\n0 recv <1.1 -> scratch[1]" + size +
         "1 copy scratch[0] -> output[0] size output[0]\n2 send input[0] -> >1.2 size input[0]\n" +
         "3 send input[1] -> >1.2 size input[1]\n" + "rank 1 scratch 0\nblock 0\n0 recv_send <0.0 -> >0.1" +
         size + "block 1\n0 recv <0.2 -> output[0] size output[0]\n1 recv <0.2 -> output[1] size output[1]\n";
}

TEST(VerifyOrder, MessagesOrderOnlyWhatTheyOutlive) {
  const PlanShape shape{.collective = "broadcast", .chunks_per_group = 2};
  EXPECT_EQ(refusal(shape, ordered_by_message("0")), "");
  // Chunk 1 is empty when the count is small, and scratch[0] is not.
  EXPECT_REFUSED("race", "scratch[0]", shape, ordered_by_message("1"));
}

// ---- slices that peers read
// -------------------------------------------------------------------------------------------------

// The text of a built-in plan with another protocol.
std::string with_protocol(const char* algorithm, const PlanRequest& request, const std::string& protocol) {
  std::string text = to_text(generate(algorithm, request));
  const std::string line = "chunks_per_group";
  return text.insert(text.find(line), "protocol " + protocol + "\n");
}

TEST(VerifyOrder, ANamedSliceIsNotWrittenBeforeItWasRead) {
  using enum Collective;
  for (const std::uint32_t ranks : {2u, 3u, 8u})
    for (const std::uint32_t blocks : {1u, 3u}) {
      // Whoever gets a sum has everybody's input read before; an exchange in place overwrites what is on its
      // way.
      EXPECT_EQ(refusal_of(with_protocol("two_shot", {kAllReduce, ranks, 0, blocks, true}, "pull")), "");
      EXPECT_EQ(refusal_of(with_protocol("pairwise", {kAllToAll, ranks, 0, blocks, false}, "pull")), "");
      for (const auto& [algorithm, collective] :
           {std::pair("pairwise", kAllToAll), std::pair("one_shot", kAllReduce)}) {
        const std::string message =
            refusal_of(with_protocol(algorithm, {collective, ranks, 0, blocks, true}, "pull"));
        EXPECT_NE(message.find("(rule pull)"), std::string::npos) << algorithm << ": " << message;
        EXPECT_NE(message.find("and nothing orders them"), std::string::npos) << message;
        EXPECT_EQ(refusal_of(with_protocol(algorithm, {collective, ranks, 0, blocks, true}, "packets")), "");
      }
    }
}

// Rank 1 reads scratch[0] of rank 0, as long as chunk 0, and says so by a message of chunk `answer`; then
// rank 0 writes there again.
std::string written_after_an_answer(const std::string& answer) {
  const std::string size = " size output[" + answer + "]\n";
  return "rank 0 scratch 2\nblock 0\n0 copy input[0] -> scratch[0] size input[0]\n"
         "1 send scratch[0] -> >1.0 size input[0]\n2 send input[1] -> >1.0 size input[1]\n"
         "3 recv <1.1 -> scratch[1]" +
         size +
         "4 copy input[0] -> scratch[0] size input[0]\n5 copy input[0] -> output[0] size output[0]\n"
         "6 copy input[1] -> output[1] size output[1]\nrank 1 scratch 0\nblock 0\n"
         "0 recv <0.0 -> output[0] size output[0]\n1 recv <0.0 -> output[1] size output[1]\n2 send output[" +
         answer + "] -> >0.1" + size;
}

TEST(VerifyOrder, AnAnswerThatMayBeEmptyFreesNoSlice) {
  const auto refused = [](const std::string& answer) {
    const PlanShape shape{.collective = "broadcast", .chunks_per_group = 2};
    std::string text = text_of(shape, written_after_an_answer(answer));
    return refusal_of(text.insert(text.find("chunks_per_group"), "protocol pull\n"));
  };
  EXPECT_EQ(refused("0"), "");
  // Chunk 1 is empty when the count is small, and scratch[0] is not.
  EXPECT_NE(refused("1").find("(rule pull)"), std::string::npos) << refused("1");
}

TEST(VerifyOrder, PullsNameMemory) {
  using enum Collective;
  const std::string forwards = refusal_of(with_protocol("ring", {kAllReduce, 3, 0, 1, false}, "pull"));
  EXPECT_NE(forwards.find("recv_reduce_send sends what lies in no buffer"), std::string::npos) << forwards;
  EXPECT_NE(refusal_of(with_protocol("ring", {kAllReduce, 3, 0, 1, false}, "letters")).find("protocol"),
            std::string::npos);
  const std::string wide =
      "protocol packets\nchunks_per_group 2\ngroups 1 1\nrank 0 scratch 0\nblock 0\n"
      "0 send input[0:2] -> >1.0 size input[0:2]\nrank 1 scratch 0\nblock 0\n"
      "0 recv <0.0 -> output[0:2] size output[0:2]\n";
  const std::string message =
      refusal_of("starling-plan 1\nname test\ncollective send_recv\nranks 2\nroot 0\nin_place 0\n" + wide);
  EXPECT_NE(message.find("take instructions of one chunk"), std::string::npos) << message;
}

}  // namespace
}  // namespace starling
