// Goal: messages that are put (kPut) mean what messages mean, both their ends agree on them, and a plan in
// which somebody else may touch their bytes while they are written is refused (verify_puts.cc,
// verify_pulls.cc). Method: the built-in plans that have them, beside those that pull; plans in text form
// with one mistake, and beside each a right plan that differs by little.
// sanitize: address (one thread)
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "plan/added.h"
#include "plan/all_plans.h"
#include "plan/generate.h"
#include "plan/refusals.h"
#include "plan/text.h"

namespace starling {
namespace {

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

std::string pulling(const PlanShape& shape, const std::string& body) {
  return replaced(text_of(shape, body), "chunks_per_group", "protocol pull\nchunks_per_group");
}

void expect_refused(const char* rule, const char* words, const std::string& text) {
  const std::string message = refusal_of(text);
  EXPECT_NE(message.find("(rule " + std::string(rule) + ")"), std::string::npos) << message;
  EXPECT_NE(message.find(words), std::string::npos) << message;
}

// ---- built-in plans
// --------------------------------------------------------------------------------------------

bool puts(const BuiltIn& built_in) { return built_in.algorithm.ends_with("_put"); }

std::vector<BuiltIn> that_put() {
  std::vector<BuiltIn> found;
  for (const BuiltIn& built_in : built_ins({2, 3, 4, 5, 6, 7, 8, 16}, {1, 3}))
    if (puts(built_in)) found.push_back(built_in);
  EXPECT_GT(found.size(), 200u);
  return found;
}

// What the plan's messages are and where they go does not depend on how they travel.
TEST(Put, ChangesNothingElse) {
  for (const BuiltIn& built_in : that_put()) {
    SCOPED_TRACE(built_in.name());
    const std::string name(built_in.algorithm);
    if (name == "ring_put" || name == "chain_put") continue;  // below
    const std::string plain(without_pull(name));
    const Plan plan = generate(name, built_in.request);  // and proves it
    // It would write over what its peers have not read yet.
    const bool by_slots = built_in.request.collective == Collective::kAllToAll && plan.in_place();
    EXPECT_EQ(plan.protocol(), by_slots ? Protocol::kSlots : Protocol::kPull);
    EXPECT_FALSE(plan.header(0)->uniform_only);
    std::string text = to_text(plan);
    const bool has_puts =
        !by_slots && (built_in.request.collective != Collective::kBroadcast || plan.rank_count() > 2);
    EXPECT_EQ(text.find(" put\n") != std::string::npos, has_puts);
    text = replaced(replaced(text, " put\n", "\n"), "protocol pull\n", "");
    EXPECT_EQ(replaced(text, "name " + name, "name " + plain), to_text(generate(plain, built_in.request)));
    EXPECT_EQ(generate(name + "@65536", built_in.request).header(0)->tile_bytes, 65536u);
  }
}

// A ring of slots forwards what has no place of its own. Here each message has one: the result's, until the
// result comes, or in place, where that is the input's still, scratch of the block's own.
TEST(Put, RingsLandWhereNothingIsRead) {
  for (const std::uint32_t ranks : {2u, 3u, 4u, 9u})
    for (const bool in_place : {false, true}) {
      SCOPED_TRACE(std::to_string(ranks) + (in_place ? " in place" : ""));
      const Plan plan = generate("ring_put", {Collective::kAllReduce, ranks, 0, 3, in_place});
      EXPECT_EQ(plan.protocol(), Protocol::kPull);
      for (std::uint32_t r = 0; r < ranks; ++r) {
        const PlanHeader& header = *plan.header(r);
        EXPECT_EQ(header.scratch_chunks, in_place ? 3 * (ranks - 1) : 0);
        EXPECT_EQ(header.tile_scratch, !in_place ? 0 : 2 * 2 * (ranks - 1) <= kMaxLent ? 2 : 1);
        EXPECT_TRUE(header.canonical);
        EXPECT_FALSE(header.uniform_only);
        EXPECT_EQ(tile_bytes_of(header, 4 << 20), in_place ? kTileScratchBytes : 4u << 20);
      }
      const Plan small = generate("ring_put@65536", {Collective::kAllReduce, ranks, 0, 3, in_place});
      EXPECT_EQ(tile_bytes_of(*small.header(0), 4 << 20), 65536u);
      EXPECT_EQ(tile_bytes_of(*small.header(0), 4096), in_place ? 4096u : 65536u);
    }
  EXPECT_TRUE(algorithm_takes("ring_put", Collective::kAllReduce, kMaxLent / 2 + 1));
  EXPECT_FALSE(algorithm_takes("ring_put", Collective::kAllReduce, kMaxLent / 2 + 2));
}

// Of a reduce_scatter the sums on their way have no place but scratch, of an all_gather each part has one.
TEST(Put, RingsOfPartsLandWhereTheyStay) {
  for (const std::uint32_t ranks : {2u, 3u, 4u, 17u})
    for (const bool in_place : {false, true}) {
      SCOPED_TRACE(std::to_string(ranks) + (in_place ? " in place" : ""));
      const Plan gather = generate("ring_put", {Collective::kAllGather, ranks, 0, 3, in_place});
      const Plan scatter = generate("ring_put", {Collective::kReduceScatter, ranks, 0, 3, in_place});
      for (std::uint32_t r = 0; r < ranks; ++r) {
        EXPECT_EQ(gather.header(r)->scratch_chunks, 0u);
        EXPECT_EQ(scatter.header(r)->scratch_chunks, 3 * (in_place ? ranks - 1 : ranks - 2));
        const int tiles = 2 * (ranks - 1) <= kMaxLent ? 2 : 1;
        EXPECT_EQ(scatter.header(r)->tile_scratch, in_place || ranks > 2 ? tiles : 0);
        EXPECT_TRUE(gather.header(r)->canonical);
        EXPECT_TRUE(scatter.header(r)->canonical);
      }
    }
  for (const Collective collective : {Collective::kAllGather, Collective::kReduceScatter}) {
    EXPECT_TRUE(algorithm_takes("ring_put", collective, kMaxLent + 1));
    EXPECT_FALSE(algorithm_takes("ring_put", collective, kMaxLent + 2));
  }
}

TEST(Put, ChainsLandWhereTheyStay) {
  for (const std::uint32_t ranks : {2u, 3u, 8u, 40u})
    for (const std::uint32_t root : {0u, ranks - 1})
      for (const bool in_place : {false, true}) {
        SCOPED_TRACE(std::to_string(ranks) + " root " + std::to_string(root) + (in_place ? " in place" : ""));
        const Plan down = generate("chain_put", {Collective::kBroadcast, ranks, root, 3, in_place});
        const Plan up = generate("chain_put", {Collective::kReduce, ranks, root, 3, in_place});
        for (std::uint32_t r = 0; r < ranks; ++r) {
          const bool begins = (r + 1) % ranks == root;
          EXPECT_EQ(down.header(r)->scratch_chunks, 0u);
          EXPECT_EQ(up.header(r)->scratch_chunks, begins ? 0u : 3u);
          EXPECT_EQ(up.header(r)->tile_scratch, 2);
          EXPECT_TRUE(down.header(r)->canonical);
          EXPECT_TRUE(up.header(r)->canonical);
        }
      }
}

// Only the root knows whether its two buffers are one, and every rank runs the same plan. Of a broadcast it
// then copies its buffer onto itself while others read it, which changes nothing.
TEST(Put, ReducesMindNoSharedBuffer) {
  std::uint32_t reduces = 0;
  for (const BuiltIn& built_in : that_put()) {
    if (built_in.request.collective != Collective::kReduce || built_in.request.in_place) continue;
    SCOPED_TRACE(built_in.name());
    EXPECT_NO_THROW(check_rooted(generate(built_in.algorithm, built_in.request)));
    ++reduces;
  }
  EXPECT_GT(reduces, 20u);
}

// Room for tiles is enough for scratch that one block has to itself and nobody else reads.
TEST(Put, ScratchOfATileIsOneBlocks) {
  const std::string plan = to_text(generate("ring_put", {Collective::kAllReduce, 2, 0, 2, true}));
  const auto of_tile = [](const std::string& text) { return plan_from_text(text).header(0)->tile_scratch; };
  EXPECT_TRUE(of_tile(plan));
  // Both blocks of rank 0 have the same.
  const std::string shared = replaced(plan, "scratch[1]", "scratch[0]");
  EXPECT_NE(refusal_of(shared), "");
  // Peers read there.
  const std::string read =
      pulling({.collective = "send_recv"},
              "rank 0 scratch 1\n  block 0\n    0 copy input[0] -> scratch[0] size input[0]\n"
              "    1 send scratch[0] -> >1.0 size input[0]\n"
              "rank 1 scratch 0\n  block 0\n    0 recv <0.0 -> output[0] size output[0]\n");
  EXPECT_FALSE(of_tile(read));
  const std::string put = replaced(replaced(read, "size input[0]\nrank", "size input[0] put\nrank"),
                                   "size output[0]", "size output[0] put");
  EXPECT_FALSE(of_tile(put));  // nobody needs to know where it is
}

TEST(Put, IsSaidOnceForEachEnd) {
  const auto count = [](const char* algorithm, Collective collective, bool in_place) {
    std::vector<std::pair<Opcode, std::uint32_t>> flagged;
    const Plan plan = generate(algorithm, {collective, 4, 0, 1, in_place});
    for (std::uint32_t r = 0; r < 4; ++r) {
      const PlanView view = plan.view(r);
      for (std::uint32_t i = 0; i < view.header->instruction_count; ++i) {
        const Instruction& instruction = view.instructions()[i];
        if ((instruction.flags & kPut) == 0) continue;
        const auto same = [&](const auto& entry) { return entry.first == instruction.opcode; };
        const auto found = std::find_if(flagged.begin(), flagged.end(), same);
        if (found == flagged.end()) {
          flagged.emplace_back(instruction.opcode, 1);
        } else {
          ++found->second;
        }
      }
    }
    std::sort(flagged.begin(), flagged.end());
    return flagged;
  };
  using Counts = std::vector<std::pair<Opcode, std::uint32_t>>;
  for (const bool in_place : {false, true}) {
    EXPECT_EQ(count("two_shot_put", Collective::kAllReduce, in_place),
              (Counts{{Opcode::recv, 12}, {Opcode::recv_reduce_copy_send, 4}}));
    EXPECT_EQ(count("ring_put", Collective::kAllReduce, in_place),
              (Counts{{Opcode::send, 12}, {Opcode::recv, 24}, {Opcode::reduce_send, 12}}));
    EXPECT_EQ(count("ring_put", Collective::kAllGather, in_place),
              (Counts{{Opcode::send, 12}, {Opcode::recv, 12}}));
    EXPECT_EQ(count("ring_put", Collective::kReduceScatter, in_place),
              (Counts{{Opcode::send, 4}, {Opcode::recv, 12}, {Opcode::reduce_send, 8}}));
    EXPECT_EQ(count("chain_put", Collective::kBroadcast, in_place),
              (Counts{{Opcode::send, 3}, {Opcode::recv, 3}}));
    EXPECT_EQ(count("chain_put", Collective::kReduce, in_place),
              (Counts{{Opcode::send, 1}, {Opcode::recv, 3}, {Opcode::reduce_send, 2}}));
    EXPECT_EQ(count("all_pairs_put", Collective::kAllGather, in_place),
              (Counts{{Opcode::send, 4}, {Opcode::recv, 12}}));
    EXPECT_EQ(count("split_put", Collective::kBroadcast, in_place),
              (Counts{{Opcode::recv, 6}, {Opcode::recv_copy_send, 3}}));
    EXPECT_EQ(count("split_put", Collective::kReduce, in_place),
              (Counts{{Opcode::recv, 3}, {Opcode::recv_reduce_send, 3}}));
  }
}

// Each link of a split carries one chunk, or the chunk of its owner and that of its reader.
TEST(Put, SplitsCutTheirBufferAmongTheOthers) {
  for (const Collective collective : {Collective::kBroadcast, Collective::kReduce})
    for (const std::uint32_t ranks : {2u, 3u, 8u}) {
      const Plan plan = generate("split_put", {collective, ranks, 1, 3});
      EXPECT_EQ(plan.header(0)->chunks_per_group, 3 * (ranks - 1));
      for (std::uint32_t r = 0; r < ranks; ++r)
        for (std::uint32_t b = 0; b < 3; ++b) {
          const PlanView view = plan.view(r);
          for (std::uint32_t i = 0; i < view.blocks()[b].instruction_count; ++i) {
            const Instruction& step = view.instructions()[view.blocks()[b].instruction_first + i];
            EXPECT_EQ(step.size_chunk / (ranks - 1), b);
            if (step.opcode != Opcode::send) continue;
            EXPECT_EQ(view.connections()[view.blocks()[b].send_first + step.send_first].peer,
                      (1 + 1 + step.size_chunk % (ranks - 1)) % ranks);  // the owner of the chunk
          }
        }
    }
  EXPECT_TRUE(algorithm_takes("split_put", Collective::kReduce, 16));
  EXPECT_FALSE(algorithm_takes("split_put", Collective::kReduce, 17));
}

// ---- text
// ------------------------------------------------------------------------------------------------------

constexpr PlanShape kMessage{.collective = "send_recv"};

// Rank 0 puts, for rank 1 to send on or to keep.
std::string message(const std::string& behind_send, const std::string& behind_recv) {
  return "rank 0 scratch 0\n  block 0\n    0 send input[0] -> >1.0 size input[0]" + behind_send +
         "\nrank 1 scratch 0\n  block 0\n    0 recv <0.0 -> output[0] size output[0]" + behind_recv + "\n";
}

TEST(Put, IsAWordOfTheText) {
  const std::string text = pulling(kMessage, message(" put", " put"));
  const Plan plan = plan_from_text(text);
  EXPECT_EQ(to_text(plan), text);
  EXPECT_EQ(plan.view(0).instructions()[0].flags, kPut);
  EXPECT_EQ(plan.view(1).instructions()[0].flags, kPut);
  EXPECT_NE(plan.hash(), plan_from_text(pulling(kMessage, message("", ""))).hash());
  expect_refused("put", "is flagged put", text_of(kMessage, message(" put", " put")));
  EXPECT_NE(refusal_of(pulling(kMessage, message(" put put", " put"))).find("nothing should follow here"),
            std::string::npos);
  std::string both = to_text(generate("two_shot_put", {Collective::kAllReduce, 2}));
  EXPECT_NE(both.find(" final put\n"), std::string::npos);
  EXPECT_NE(refusal_of(replaced(both, " final put\n", " put final\n")).find("nothing should follow here"),
            std::string::npos);
  expect_refused("dependencies", "waits for 1.0", replaced(both, " final put\n", " final put after 1.0\n"));
}

// ---- structure
// -------------------------------------------------------------------------------------------------

TEST(Put, IsOfProtocolPullAlone) {
  const std::string text = to_text(generate("two_shot_put", {Collective::kAllReduce, 3}));
  EXPECT_EQ(refusal_of(text), "");
  for (const char* protocol : {"protocol packets\n", ""})
    expect_refused("put", "which messages of protocol pull alone are",
                   replaced(text, "protocol pull\n", protocol));
}

TEST(Put, IsOfWhatReceivesAloneOrSends) {
  const std::string text = to_text(generate("two_shot_pull", {Collective::kAllReduce, 3}));
  const auto flagged = [&](const char* opcode, const char* as) {
    std::string with = text;
    const std::size_t at = with.find(opcode);
    EXPECT_NE(at, std::string::npos);
    return with.replace(at, with.find('\n', at) - at, as);
  };
  expect_refused("put", "rank 0, block 0, instruction 0: copy is flagged put, but has no message",
                 flagged("send", "copy input[1] -> output[1] size output[1] put"));
  expect_refused("put", "recv_reduce_copy is flagged put, but has no message",
                 flagged("recv_reduce_copy_send",
                         "recv_reduce_copy input[0] <1.0 <2.0 -> output[0] size "
                         "output[0] final put"));
  expect_refused("put", "nop is flagged put", flagged("send", "nop size output[0] put"));
}

TEST(Put, LetsInstructionsSendWhatLiesInNoBuffer) {
  const std::string text = to_text(generate("split_put", {Collective::kReduce, 3, 0, 1, true}));
  EXPECT_NE(text.find("recv_reduce_send"), std::string::npos);
  EXPECT_EQ(refusal_of(text), "");
  expect_refused("protocol", "recv_reduce_send sends what lies in no buffer", replaced(text, " put\n", "\n"));
}

TEST(Put, OtherFlagsAreUnknown) {
  const Plan plan = generate("two_shot_put", {Collective::kAllReduce, 2});
  std::vector<std::vector<std::byte>> bytes;
  for (std::uint32_t r = 0; r < 2; ++r) bytes.emplace_back(plan.part(r).begin(), plan.part(r).end());
  const auto message = [&](std::uint8_t flag) {
    std::vector<std::vector<std::byte>> changed = bytes;
    const auto* first = reinterpret_cast<const std::byte*>(plan.view(0).instructions());
    changed[0][std::size_t(first - plan.part(0).data()) + offsetof(Instruction, flags)] |= std::byte{flag};
    try {
      const std::vector<std::span<const std::byte>> parts(changed.begin(), changed.end());
      Plan::from_parts("changed", parts);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message(0), "");
  EXPECT_NE(message(kPut).find("(rule put)"), std::string::npos) << message(kPut);
  EXPECT_NE(message(8).find("unknown flags 8"), std::string::npos) << message(8);
}

// ---- both ends
// -------------------------------------------------------------------------------------------------

TEST(Put, BothEndsAgree) {
  expect_refused(
      "put",
      "rank 1, block 0, instruction 0: rank 0 block 0 instruction 0 (send) puts message 0 of connection "
      "0->1 channel 0, which rank 1 block 0 instruction 0 (recv) does not want put",
      pulling(kMessage, message(" put", "")));
  expect_refused("put",
                 "(send) does not put message 0 of connection 0->1 channel 0, which rank 1 block 0 "
                 "instruction 0 (recv) wants put",
                 pulling(kMessage, message("", " put")));
  // What is received to be reduced, or sent on, is never put.
  const std::string text = to_text(generate("two_shot_put", {Collective::kAllReduce, 2}));
  expect_refused("put", "(recv_reduce_copy_send) does not want put",
                 replaced(text, "size input[1]\n", "size input[1] put\n"));
}

TEST(Put, FewOfAConnectionAreLent) {
  const auto messages = [](int count, const char* flag) {
    std::string sends = "rank 0 scratch 0\nblock 0\n", receives = "rank 1 scratch 0\nblock 0\n";
    for (int k = 0; k < count; ++k) {
      const std::string number = std::to_string(k);
      sends += number + " send input[" + number + "] -> >1.0 size input[" + number + "]" + flag + "\n";
      receives += number + " recv <0.0 -> output[" + number + "] size output[" + number + "]" + flag + "\n";
    }
    return pulling({.collective = "send_recv", .chunks_per_group = count}, sends + receives);
  };
  EXPECT_EQ(refusal_of(messages(int(kMaxLent), " put")), "");
  EXPECT_EQ(refusal_of(messages(int(kMaxLent) + 1, "")), "");
  expect_refused(
      "put_count",
      "rank 1, block 0, instruction 16: rank 1 block 0 instruction 16 (recv) receives one more message",
      messages(int(kMaxLent) + 1, " put"));
}

// ---- order
// -----------------------------------------------------------------------------------------------------

// Rank 1 has a chunk in scratch[0] that it reads; then rank 0 puts another there, told by an answer of chunk
// `answer` if there is one.
std::string put_after_an_answer(const std::string& answer) {
  const std::string size = " size output[" + answer + "]\n";
  const std::string told = answer.empty() ? "" : "2 recv <1.1 -> scratch[0]" + size;
  const std::string tells = answer.empty() ? "" : "3 send output[" + answer + "] -> >0.1" + size;
  const auto number = [&](int without) { return std::to_string(without + (answer.empty() ? 0 : 1)); };
  return "rank 0 scratch 1\nblock 0\n0 send input[1] -> >1.0 size input[1]\n"
         "1 send input[0] -> >1.0 size input[0]\n" +
         told + number(2) + " send input[0] -> >1.0 size input[0] put\n" + number(3) +
         " copy input[0] -> output[0] size output[0]\n" + number(4) +
         " copy input[1] -> output[1] size output[1]\nrank 1 scratch 1\nblock 0\n"
         "0 recv <0.0 -> output[1] size output[1]\n1 recv <0.0 -> scratch[0] size output[0]\n"
         "2 copy scratch[0] -> output[0] size output[0]\n" +
         tells + number(3) + " recv <0.0 -> scratch[0] size output[0] put\n" + number(4) +
         " copy scratch[0] -> output[0] size output[0]\n";
}

constexpr PlanShape kTwoChunks{.collective = "broadcast", .chunks_per_group = 2};

TEST(Put, WaitsForWhoReadsAndWritesThere) {
  EXPECT_EQ(refusal_of(pulling(kTwoChunks, put_after_an_answer("0"))), "");
  const std::string message = refusal_of(pulling(kTwoChunks, put_after_an_answer("")));
  EXPECT_NE(message.find("(rule put_order)"), std::string::npos) << message;
  EXPECT_NE(message.find(
                "rank 1, block 0, instruction 1: writes a slice while rank 0 block 0 instruction 2 may put "
                "there what block 0 instruction 3 receives, and nothing orders them"),
            std::string::npos)
      << message;
  // A plain message is read when it is received, after all this.
  const std::string plain = replaced(pulling(kTwoChunks, put_after_an_answer("")), " put\n", "\n");
  EXPECT_EQ(refusal_of(plain), "");
}

TEST(Put, AnAnswerThatMayBeEmptyLetsNobodyPut) {
  // Chunk 1 is empty when the count is small, and what is put is not.
  expect_refused("put_order", "writes a slice while", pulling(kTwoChunks, put_after_an_answer("1")));
}

// Rank 1's block 1 reads scratch[0] before block 0 receives there again: it is the answer that must come
// later.
TEST(Put, WaitsForOtherBlocks) {
  const auto body = [](const char* answers_after, const char* receives_after) {
    return "rank 0 scratch 1\nblock 0\n0 send input[0] -> >1.0 size input[0]\n"
           "1 recv <1.1 -> scratch[0] size input[0]\n2 send input[0] -> >1.0 size input[0] put\n"
           "rank 1 scratch 1\nblock 0\n0 recv <0.0 -> scratch[0] size output[0]\n"
           "1 send scratch[0] -> >0.1 size output[0]" +
           std::string(answers_after) + "\n2 recv <0.0 -> scratch[0] size output[0] put" + receives_after +
           "\nblock 1\n0 copy scratch[0] -> output[0] size output[0] after 0.0\n";
  };
  EXPECT_EQ(refusal_of(pulling(kMessage, body(" after 1.0", ""))), "");
  expect_refused("put_order",
                 "rank 1, block 1, instruction 0: reads a slice while rank 0 block 0 instruction 2",
                 pulling(kMessage, body("", " after 1.0")));
  EXPECT_EQ(refusal_of(replaced(pulling(kMessage, body("", " after 1.0")), " put", "")), "");
}

// Rank 1 has the chunk from the root and gives it to rank 2, which reads it there; `teller` tells the root,
// and it puts the chunk again.
std::string read_by_a_third(const std::string& teller) {
  const auto tells = [&](const char* rank, const char* number) {
    return teller == rank ? number + std::string(" send output[0] -> >0.1 size output[0]\n") : "";
  };
  return "rank 0 scratch 1\nblock 0\n0 send input[0] -> >1.0 size input[0]\n1 recv <" + teller +
         ".1 -> scratch[0] size input[0]\n2 send input[0] -> >1.0 size input[0] put\n"
         "3 copy input[0] -> output[0] size output[0]\nrank 1 scratch 0\nblock 0\n"
         "0 recv <0.0 -> output[0] size output[0]\n1 send output[0] -> >2.0 size output[0]\n" +
         tells("1", "2") + (teller == "1" ? "3" : "2") +
         " recv <0.0 -> output[0] size output[0] put\nrank 2 scratch 0\nblock 0\n"
         "0 recv <1.0 -> output[0] size output[0]\n" +
         tells("2", "1");
}

TEST(Put, WaitsForWhoPullsThere) {
  const PlanShape shape{.collective = "broadcast", .ranks = 3};
  EXPECT_EQ(refusal_of(pulling(shape, read_by_a_third("2"))), "");
  expect_refused(
      "put_order",
      "rank 2, block 0, instruction 0: reads a slice of rank 1 while rank 0 block 0 instruction 2 may put "
      "there what block 0 instruction 3 receives",
      pulling(shape, read_by_a_third("1")));
  // What is pulled only after it was received is none of the put's business.
  const std::string after =
      "rank 0 scratch 0\nblock 0\n0 send input[0] -> >1.0 size input[0] put\n"
      "1 copy input[0] -> output[0] size output[0]\nrank 1 scratch 0\nblock 0\n"
      "0 recv <0.0 -> output[0] size output[0] put\n1 send output[0] -> >2.0 size output[0]\n"
      "rank 2 scratch 0\nblock 0\n0 recv <1.0 -> output[0] size output[0]\n";
  EXPECT_EQ(refusal_of(pulling(shape, after)), "");
}

// The root pulls rank 1's chunk, which is in place its output, and puts the sum there: in one instruction, or
// in two.
TEST(Put, GoesWhereTheSameInstructionPulled) {
  const PlanShape shape{.in_place = 1};
  const std::string other =
      "rank 1 scratch 0\nblock 0\n0 send input[0] -> >0.0 size input[0]\n"
      "1 recv <0.0 -> output[0] size output[0] put\n";
  const std::string sum =
      "0 recv_reduce_copy_send input[0] <1.0 -> output[0] >1.0 size output[0] final put\n";
  EXPECT_EQ(refusal_of(pulling(shape, "rank 0 scratch 0\nblock 0\n" + sum + other)), "");
  const std::string apart =
      "0 recv_reduce_copy input[0] <1.0 -> output[0] size output[0] final\n"
      "1 send output[0] -> >1.0 size output[0] put\n";
  EXPECT_EQ(refusal_of(pulling(shape, "rank 0 scratch 0\nblock 0\n" + apart + other)), "");
  // Of another instruction that pulls it nothing is known.
  const std::string twice = "rank 0 scratch 1\nblock 0\n" + sum +
                            "block 1\n0 recv <1.1 -> scratch[0] size output[0]\n" +
                            replaced(other, "1 recv", "1 send input[0] -> >0.1 size input[0]\n2 recv");
  const std::string message = refusal_of(pulling(shape, twice));
  EXPECT_NE(message.find("rank 0, block 1, instruction 0: reads a slice of rank 1"), std::string::npos)
      << message;
}

// Root and rank 2 put into the same chunk of rank 1; rank 2 after a message from rank 1, or without.
TEST(Put, WaitsForWhoElsePutsThere) {
  const auto body = [](bool told) {
    return "rank 0 scratch 0\nblock 0\n0 send input[0] -> >1.0 size input[0] put\n"
           "1 send input[0] -> >2.0 size input[0]\n2 copy input[0] -> output[0] size output[0]\n"
           "rank 1 scratch 0\nblock 0\n0 recv <0.0 -> output[0] size output[0] put\n" +
           std::string(told ? "1 send output[0] -> >2.1 size output[0]\n2" : "1") +
           " recv <2.0 -> output[0] size output[0] put\nrank 2 scratch 1\nblock 0\n"
           "0 recv <0.0 -> output[0] size output[0]\n" +
           (told ? "1 recv <1.1 -> scratch[0] size output[0]\n2" : "1") +
           " send output[0] -> >1.0 size output[0] put\n";
  };
  const PlanShape shape{.collective = "broadcast", .ranks = 3};
  EXPECT_EQ(refusal_of(pulling(shape, body(true))), "");
  expect_refused("put_order", "puts into a slice of rank 1 while rank", pulling(shape, body(false)));
}

}  // namespace
}  // namespace starling
