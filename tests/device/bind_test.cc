// Goal: what a start kernel is told of an operation that comes bound is what the interpreter finds in the
// plan: the same slices, connections and messages, on every block; and what cannot be said so is not bound.
// Method: every built-in plan of packets or of pulls, for many ranks, blocks and lengths, beside the
// interpreter's own functions.
// sanitize: address (one thread)
#include "device/bind.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "plan/generate.h"

namespace starling::device {
namespace {

struct Algorithm {
  Collective collective;
  const char* name;
  bool rooted = false;
};

const Algorithm kAlgorithms[] = {
    {Collective::kAllReduce, "one_shot_packets"},     {Collective::kAllReduce, "two_shot_packets"},
    {Collective::kAllGather, "all_pairs_packets"},    {Collective::kReduceScatter, "all_pairs_packets"},
    {Collective::kBroadcast, "direct_packets", true}, {Collective::kReduce, "direct_packets", true},
    {Collective::kAllToAll, "pairwise_packets"},      {Collective::kBroadcast, "split_packets", true},
    {Collective::kReduce, "split_packets", true},
};

const Algorithm kPulls[] = {
    {Collective::kAllReduce, "one_shot_pull"},     {Collective::kAllReduce, "two_shot_pull"},
    {Collective::kAllGather, "all_pairs_pull"},    {Collective::kReduceScatter, "all_pairs_pull"},
    {Collective::kBroadcast, "direct_pull", true}, {Collective::kReduce, "direct_pull", true},
    {Collective::kAllToAll, "pairwise_pull"},      {Collective::kAllReduce, "two_shot_put"},
    {Collective::kAllGather, "all_pairs_put"},     {Collective::kBroadcast, "split_put", true},
    {Collective::kReduce, "split_put", true},      {Collective::kAllToAll, "pairwise_put"},
};

alignas(16) std::byte buffers[3];  // only their addresses count

Operation operation_of(const PlanHeader& plan, uint64_t group_bytes, uint64_t tile_bytes = 1 << 20) {
  Operation op{};
  op.plan = &plan;
  op.buffers[uint32_t(BufferKind::kInput)].base = &buffers[0];
  op.buffers[uint32_t(BufferKind::kOutput)].base = &buffers[1];
  op.buffers[uint32_t(BufferKind::kScratch)].base = &buffers[2];
  op.group_bytes = group_bytes;
  op.chunk_bytes = (group_bytes + plan.chunks_per_group - 1) / plan.chunks_per_group;
  if (plan.chunks_per_group > 1) op.chunk_bytes = (op.chunk_bytes + 15) / 16 * 16;
  op.tile_bytes = tile_bytes;
  op.tile_count = (op.chunk_bytes + op.tile_bytes - 1) / op.tile_bytes;
  op.data_type = DataType::kFloat32;
  op.reduce_op = ReduceOp::kSum;
  op.rank_count = plan.rank_count;
  return op;
}

std::byte* address(const Operation& op, BufferKind kind, uint32_t chunk) {
  const BufferBinding& buffer = op.buffers[uint32_t(kind)];
  return buffer.base + chunk_begin(op, buffer, kind, chunk);
}

// In each tile.
bool every_block_has_some(const Operation& op) {
  const PlanView plan{op.plan};
  for (uint32_t n = 0; n < op.plan->instruction_count; ++n)
    if (tile_range(op, plan.instructions()[n], 0, op.tile_count - 1).bytes == 0) return false;
  return true;
}

void expect_same(const Operation& op, const BoundProgram& program) {
  const PlanView plan{op.plan};
  for (uint32_t b = 0; b < op.plan->block_count; ++b) {
    const BlockPlan& block = plan.blocks()[b];
    ASSERT_EQ(program.count, block.instruction_count);
    ASSERT_EQ(program.receive_count, block.receive_count);
    ASSERT_EQ(program.send_count, block.send_count);
    for (uint32_t k = 0; k < block.receive_count; ++k) {
      EXPECT_EQ(program.receive_peers[k], plan.connections()[block.receive_first + k].peer);
      EXPECT_EQ(b, plan.connections()[block.receive_first + k].channel);
    }
    for (uint32_t k = 0; k < block.send_count; ++k)
      EXPECT_EQ(program.send_peers[k], plan.connections()[block.send_first + k].peer);
    std::vector<uint32_t> received(block.receive_count), sent(block.send_count);
    for (uint32_t n = 0; n < program.count; ++n) {
      const Instruction& i = plan.instructions()[block.instruction_first + n];
      const BoundInstruction& bound = program.instructions[n];
      const uint64_t left = bound.span - uint64_t(b) * bound.span_step;
      EXPECT_LE(program.tile_bytes, program.chunk_bytes);
      const uint64_t whole = std::min<uint64_t>(left, program.chunk_bytes);
      for (uint64_t t = 0; t < program.tile_count; ++t)
        EXPECT_EQ(std::min<uint64_t>(whole - t * program.tile_bytes, program.tile_bytes),
                  tile_range(op, i, 0, t).bytes);
      if (reads_source(i.opcode)) {
        EXPECT_EQ(bound.source + b * uint64_t(bound.source_step),
                  address(op, i.source_buffer, i.source_chunk));
      }
      EXPECT_EQ(bound.source != nullptr, reads_source(i.opcode));
      EXPECT_EQ(bound.local_at,
                reads_source(i.opcode) ? i.local_position + reduces_into(i.opcode) : kNoLocal);
      if (writes_destination(i.opcode)) {
        EXPECT_EQ(bound.destination + b * uint64_t(bound.destination_step),
                  address(op, i.destination_buffer, i.destination_chunk));
      }
      EXPECT_EQ(bound.destination != nullptr, writes_destination(i.opcode));
      ASSERT_EQ(bound.receive_count, receives(i.opcode) ? i.receive_count : 0);
      ASSERT_EQ(bound.send_count, sends(i.opcode) ? i.send_count : 0);
      for (uint32_t k = 0; k < bound.receive_count; ++k)
        EXPECT_EQ(program.pulls ? bound.received_before : received[i.receive_first + k],
                  bound.received_before);
      for (uint32_t k = 0; k < bound.receive_count; ++k) ++received[i.receive_first + k];
      for (uint32_t k = 0; k < bound.send_count; ++k)
        EXPECT_EQ(program.pulls ? uint32_t(offered_buffer(i)) : sent[i.send_first + k], bound.sent_before);
      EXPECT_EQ(program.pulls && is_put(bound), is_put(i));
      for (uint32_t k = 0; k < bound.send_count; ++k) ++sent[i.send_first + k];
    }
    for (uint32_t k = 0; k < block.receive_count; ++k) EXPECT_EQ(received[k], program.received[k]);
    for (uint32_t k = 0; k < block.send_count; ++k) EXPECT_EQ(sent[k], program.sent[k]);
    const Instruction* first = plan.instructions() + block.instruction_first;
    const auto waits =
        std::find_if(first, first + program.count, [](const Instruction& i) { return receives(i.opcode); });
    const bool fit_twice =
        std::all_of(sent.begin(), sent.end(), [](uint32_t messages) { return messages <= kPacketSlots / 2; });
    EXPECT_EQ(program.leading,
              program.pulls == 0 && program.tile_count > 1 && block.send_count != 0 && fit_twice
                  ? uint32_t(waits - first)
                  : 0);
  }
}

TEST(Bind, SaysWhatThePlanSays) {
  uint32_t bound = 0;
  for (const Algorithm& algorithm : kAlgorithms)
    for (uint32_t ranks : {2, 3, 4, 5, 8, 9})
      for (uint32_t blocks : {1, 2, 8, 16})
        for (bool in_place : {false, true}) {
          if (in_place && algorithm.collective == Collective::kAllToAll) continue;
          const Plan plan = generate(algorithm.name, {.collective = algorithm.collective,
                                                      .rank_count = ranks,
                                                      .root = algorithm.rooted ? ranks - 1 : 0,
                                                      .block_count = blocks,
                                                      .in_place = in_place});
          for (uint32_t rank = 0; rank < ranks; ++rank)
            for (const auto& [bytes, tile_bytes] : std::vector<std::pair<uint64_t, uint64_t>>{
                     {1, 16}, {8, 16}, {20, 16}, {16 * 40, 64}, {4096, 64}, {4096, 8192}, {70000, 8192}}) {
              SCOPED_TRACE(std::string(algorithm.name) + ", " + std::to_string(ranks) + " ranks, " +
                           std::to_string(blocks) + " blocks, rank " + std::to_string(rank) + ", " +
                           std::to_string(bytes) + " bytes");
              const Operation op = operation_of(*plan.header(rank), bytes, tile_bytes);
              const BoundProgram program = ProgramBinder(*plan.header(rank), op).bind();
              const BlockPlan& first = PlanView{op.plan}.blocks()[0];
              const bool usual = first.instruction_count <= kBoundInstructions &&
                                 first.receive_count <= kBoundEnds && first.send_count <= kBoundEnds &&
                                 every_block_has_some(op);
              ASSERT_EQ(program.count != 0, usual);
              if (!usual) continue;
              expect_same(op, program);
              ++bound;
            }
        }
  EXPECT_GT(bound, 1000u);
}

// With as many connections as a block may have, and something to do for each block in each tile: all of them.
TEST(Bind, SaysWhatAPullSays) {
  for (const Algorithm& algorithm : kPulls)
    for (uint32_t ranks : {2, 4, 8, 9})
      for (uint32_t blocks : {1, 8})
        for (const auto& [bytes, tile_bytes] :
             std::vector<std::pair<uint64_t, uint64_t>>{{1 << 20, 1 << 20}, {64 << 10, 4096}, {3, 16}}) {
          SCOPED_TRACE(std::string(algorithm.name) + ", " + std::to_string(ranks) + " ranks, " +
                       std::to_string(blocks) + " blocks, " + std::to_string(bytes) + " bytes");
          const Plan plan = generate(algorithm.name, {.collective = algorithm.collective,
                                                      .rank_count = ranks,
                                                      .root = algorithm.rooted ? ranks - 1 : 0,
                                                      .block_count = blocks});
          for (uint32_t rank = 0; rank < ranks; ++rank) {
            const Operation op = operation_of(*plan.header(rank), bytes, tile_bytes);
            const BoundProgram program = ProgramBinder(*plan.header(rank), op).bind();
            const BlockPlan& first = PlanView{op.plan}.blocks()[0];
            const bool usual = first.instruction_count <= kBoundInstructions &&
                               first.receive_count <= kBoundEnds && first.send_count <= kBoundEnds &&
                               every_block_has_some(op);
            EXPECT_EQ(program.count != 0, usual && first.instruction_count != 0);
            EXPECT_EQ(program.pulls, program.count != 0);
            if (program.count != 0) expect_same(op, program);
          }
        }
}

// What can be told together, and awaited together.
TEST(Bind, KnowsHeadsAndTailsOfPulls) {
  struct {
    Collective collective;
    const char* name;
    uint32_t tile_count, heads, tails;
  } const cases[] = {
      {Collective::kAllGather, "all_pairs_pull", 1, 2, 3},  // a fan of addresses, the copy, three receives
      {Collective::kReduceScatter, "all_pairs_pull", 1, 3, 0},
      {Collective::kAllReduce, "two_shot_pull", 1, 3, 3},
      {Collective::kAllReduce, "one_shot_pull", 1, 1, 0},
      {Collective::kAllToAll, "pairwise_pull", 1, 4, 3},
      {Collective::kAllToAll, "pairwise_pull", 4, 4, 3},
      {Collective::kAllReduce, "two_shot_put", 1, 3, 3},
      {Collective::kAllGather, "all_pairs_put", 1, 0, 3},  // what it sends it has to write
      {Collective::kBroadcast, "split_put", 1, 0, 2},
      {Collective::kReduce, "split_put", 1, 2, 0},
      {Collective::kAllReduce, "ring_put", 2, 0, 1},  // another waits on the same connection
  };
  for (const auto& expected : cases) {
    SCOPED_TRACE(expected.name);
    const Plan plan =
        generate(expected.name, {.collective = expected.collective, .rank_count = 4, .block_count = 2});
    Operation op = operation_of(*plan.header(1), 4096);
    op = operation_of(*plan.header(1), 4096, op.chunk_bytes / expected.tile_count);
    ASSERT_EQ(op.tile_count, expected.tile_count);
    const BoundProgram program = ProgramBinder(*plan.header(1), op).bind();
    EXPECT_EQ(program.heads, expected.heads);
    EXPECT_EQ(program.tails, expected.tails);
    EXPECT_EQ(program.leading, 0u);
  }
}

// What is copied together has no order: nothing of it may overwrite the rest.
TEST(Bind, TailsOverwriteNothingOfEachOther) {
  const Plan plan =
      generate("all_pairs_pull", {.collective = Collective::kAllGather, .rank_count = 4, .block_count = 2});
  const PlanView view{plan.header(1)};
  for (uint32_t b = 0; b < 2; ++b) {
    const BlockPlan& block = view.blocks()[b];
    auto* const last =
        const_cast<Instruction*>(view.instructions()) + block.instruction_first + block.instruction_count - 1;
    last->destination_chunk = (last - 1)->destination_chunk;
  }
  const BoundProgram program = ProgramBinder(*plan.header(1), operation_of(*plan.header(1), 4096)).bind();
  EXPECT_NE(program.count, 0u);
  EXPECT_EQ(program.tails, 1u);
}

// Those that come last wait together if their messages travel alike.
TEST(Bind, KnowsWhatLands) {
  const Plan plan =
      generate("two_shot_put", {.collective = Collective::kAllReduce, .rank_count = 4, .block_count = 2});
  const PlanView view{plan.header(1)};
  const auto bind = [&] {
    return ProgramBinder(*plan.header(1), operation_of(*plan.header(1), 4096)).bind();
  };
  EXPECT_EQ(bind().landings, 3u);
  EXPECT_EQ(bind().tails, 3u);
  for (uint32_t b = 0; b < 2; ++b) {
    const BlockPlan& block = view.blocks()[b];
    auto* const last =
        const_cast<Instruction*>(view.instructions()) + block.instruction_first + block.instruction_count - 1;
    last->flags &= uint8_t(~kPut);
  }
  EXPECT_EQ(bind().landings, 2u);
  EXPECT_EQ(bind().tails, 1u);
}

// Of a ring in place: sums land in scratch, which two tiles have in turn, results in the output; the last sum
// is final.
TEST(Bind, KnowsScratchOfATile) {
  const Plan plan = generate(
      "ring_put",
      {.collective = Collective::kAllReduce, .rank_count = 3, .root = 0, .block_count = 2, .in_place = true});
  Operation op = operation_of(*plan.header(1), 12 * 4096, 1024);
  op.reduce_op = ReduceOp::kAvg;
  const BoundProgram program = ProgramBinder(*plan.header(1), op).bind();
  EXPECT_EQ(program.planned, 9u);
  ASSERT_EQ(program.count, 6u);
  EXPECT_EQ(program.landings, 4u);
  EXPECT_EQ(program.lends_ahead, 1u);
  EXPECT_EQ(program.divisor, 3u);
  constexpr uint8_t kSum = kBoundPut | kBoundDestinationOfTile | kBoundLandsFirst, kPassed = kBoundPassesOn;
  constexpr uint8_t kOn = kBoundPut | kBoundLandsFirst | kBoundLandsInSource;
  const struct {
    uint8_t bits;
    BufferKind named;
  } expected[] = {{kBoundPut, BufferKind::kInput},
                  {kSum | kPassed, BufferKind::kScratch},
                  {kSum | kBoundFinal, BufferKind::kScratch},
                  {kBoundSourceOfTile, BufferKind::kNone},
                  {kOn, BufferKind::kOutput},
                  {kBoundPut, BufferKind::kOutput}};
  for (uint32_t n = 0; n < std::size(expected); ++n) {
    SCOPED_TRACE(n);
    const BoundInstruction& i = program.instructions[n];
    EXPECT_EQ(i.received_before, expected[n].bits);
    EXPECT_EQ(i.sent_before, uint8_t(expected[n].named));
    EXPECT_EQ(lands(i), n == 5);
    EXPECT_EQ(reduces_into(i), n == 1 || n == 2);
    EXPECT_EQ(i.receive_first, 0u);
    EXPECT_EQ(keeps(i), n == 2 || n == 3 || n == 5);
    if ((i.received_before & kBoundDestinationOfTile) != 0) {
      EXPECT_EQ(i.destination_step, 2 * 2 * op.tile_bytes);
    }
  }
}

// In one buffer the last sum, which is sent and copied, is made where the own part lies; out of place the sum
// that is sent on is kept nowhere. Places are lent a tile ahead.
TEST(Bind, KeepsNoSumThatNobodyReads) {
  for (const bool in_place : {true, false}) {
    SCOPED_TRACE(in_place);
    const Plan plan = generate("ring_put", {.collective = Collective::kAllReduce,
                                            .rank_count = 3,
                                            .root = 0,
                                            .block_count = 2,
                                            .in_place = in_place});
    Operation op = operation_of(*plan.header(1), 12 * 4096, 1024);
    std::byte* const output = op.buffers[uint32_t(BufferKind::kOutput)].base;
    if (in_place) op.buffers[uint32_t(BufferKind::kInput)].base = output;
    const BoundProgram program = ProgramBinder(*plan.header(1), op).bind();
    ASSERT_EQ(program.count, 5u);
    EXPECT_EQ(program.planned, in_place ? 9u : 8u);
    // Four places a tile and sixteen words.
    EXPECT_EQ(program.lends_ahead, 1u);
    const BoundInstruction& passed = program.instructions[1];
    EXPECT_FALSE(keeps(passed));
    EXPECT_FALSE(lands_in_source(passed));
    EXPECT_EQ(planned(passed), 2u);
    const BoundInstruction& last = program.instructions[2];
    EXPECT_TRUE(keeps(last));
    EXPECT_EQ(last.sent_before, uint8_t(in_place ? BufferKind::kScratch : BufferKind::kOutput));
    EXPECT_EQ(lands_in_source(last), in_place);
    EXPECT_EQ(planned(last), in_place ? 3u : 2u);
    EXPECT_EQ(last.received_before & (kBoundSourceOfTile | kBoundDestinationOfTile),
              in_place ? kBoundSourceOfTile : 0);
    // Rank 1 sums up part 2 at the end.
    EXPECT_EQ(last.destination, output + 2 * op.chunk_bytes);
    EXPECT_EQ(last.destination_step, 3 * op.chunk_bytes);
  }
  // A part that a rank keeps and sends goes to both places at once; what lands is added to where it landed.
  const auto bind = [](Collective collective) {
    const Plan plan = generate("ring_put", {.collective = collective, .rank_count = 4, .block_count = 2});
    return ProgramBinder(*plan.header(1), operation_of(*plan.header(1), 64 * 4096, 1024)).bind();
  };
  const BoundProgram gather = bind(Collective::kAllGather);
  ASSERT_EQ(gather.count, 4u);
  EXPECT_EQ(gather.planned, 7u);
  EXPECT_EQ(planned(gather.instructions[0]), 2u);
  EXPECT_TRUE(keeps(gather.instructions[0]));
  EXPECT_EQ(gather.instructions[0].send_count, 1u);
  EXPECT_TRUE(lands_in_source(gather.instructions[1]));
  EXPECT_EQ(gather.tails, 1u);
  EXPECT_EQ(gather.lends_ahead, 1u);
  const BoundProgram scatter = bind(Collective::kReduceScatter);
  ASSERT_EQ(scatter.count, 4u);
  EXPECT_EQ(scatter.planned, 7u);
  EXPECT_EQ(scatter.heads, 0u);
  EXPECT_FALSE(keeps(scatter.instructions[1]));
  const BoundInstruction& result = scatter.instructions[3];
  EXPECT_TRUE(lands_first(result) && reduces_into(result) && keeps(result));
  EXPECT_FALSE(is_put(result));
  EXPECT_EQ(scatter.lends_ahead, 1u);
  // What comes down a chain is sent on from where it landed; what goes up is kept nowhere but at the root.
  for (const bool in_place : {false, true}) {
    const auto bind_chain = [&](Collective collective, uint32_t r) {
      const Plan plan = generate(
          "chain_put",
          {.collective = collective, .rank_count = 3, .root = 0, .block_count = 2, .in_place = in_place});
      Operation op = operation_of(*plan.header(r), 2 * 4096, 1024);
      if (in_place)
        op.buffers[uint32_t(BufferKind::kInput)].base = op.buffers[uint32_t(BufferKind::kOutput)].base;
      return ProgramBinder(*plan.header(r), op).bind();
    };
    for (const Collective collective : {Collective::kBroadcast, Collective::kReduce})
      for (uint32_t r = 0; r < 3; ++r) {
        const BoundProgram chain = bind_chain(collective, r);
        // What is summed up in scratch is kept by a copy, if not in place.
        EXPECT_EQ(chain.count, collective == Collective::kReduce && r == 0 && !in_place ? 2u : 1u);
        const uint32_t lender = collective == Collective::kBroadcast ? 0 : 2;
        EXPECT_EQ(chain.lends_ahead, r == lender ? 0 : 1);
      }
    const BoundProgram middle = bind_chain(Collective::kReduce, 1), root = bind_chain(Collective::kReduce, 0);
    EXPECT_TRUE(lands_first(middle.instructions[0]) && !keeps(middle.instructions[0]));
    EXPECT_TRUE(keeps(root.instructions[0]) && (root.instructions[0].received_before & kBoundFinal));
    EXPECT_EQ(lands_in_source(root.instructions[0]), in_place);
  }
  // Of six ranks a connection has words for the places of one tile.
  const Plan plan = generate("ring_put", {.collective = Collective::kAllReduce, .rank_count = 6});
  const BoundProgram program =
      ProgramBinder(*plan.header(1), operation_of(*plan.header(1), 6 << 20, 4096)).bind();
  EXPECT_EQ(program.landings, 10u);
  EXPECT_EQ(program.lends_ahead, 0u);
}

// Where its buffers do not overlap the root of a chain makes the sum in the other one at once.
TEST(Bind, SumsUpApart) {
  const Plan reduce = generate("chain_put", {.collective = Collective::kReduce, .rank_count = 3, .root = 0});
  Operation op = operation_of(*reduce.header(0), 2 * 4096, 1024);
  std::vector<std::byte> apart(3 * 2 * 4096);
  op.buffers[uint32_t(BufferKind::kInput)].base = &apart[0];
  op.buffers[uint32_t(BufferKind::kOutput)].base = &apart[2 * 4096];
  const BoundProgram root = ProgramBinder(*reduce.header(0), op).bind();
  ASSERT_EQ(root.count, 1u);
  EXPECT_EQ(root.apart, 1u);
  EXPECT_EQ(root.added, &apart[0]);
  EXPECT_EQ(planned(root.instructions[0]), 3u);
  EXPECT_EQ(root.instructions[0].destination, &apart[2 * 4096]);
  EXPECT_EQ(root.instructions[0].received_before,
            kBoundFinal | kBoundLandsFirst | kBoundLandsInSource | kBoundSourceOfTile | kBoundCopies);
}

class NotBound : public ::testing::Test {
 protected:
  const Plan plan_ =
      generate("one_shot_packets", {.collective = Collective::kAllReduce, .rank_count = 4, .block_count = 2});
  Operation op_ = operation_of(*plan_.header(1), 4096);

  uint32_t count() { return ProgramBinder(*plan_.header(1), op_).bind().count; }
};

TEST_F(NotBound, OnlyWhatIsAskedOfItHere) {
  EXPECT_EQ(count(), 2u);
  op_.fence_previous = 1;  // its blocks look for themselves
  EXPECT_EQ(count(), 2u);
}

// The last block's share ends in its first tile: it sends fewer messages than the others.
TEST_F(NotBound, TilesThatNotAllBlocksHave) {
  op_ = operation_of(*plan_.header(1), 4000, 1024);
  EXPECT_EQ(op_.tile_count, 2u);
  EXPECT_EQ(count(), 2u);
  op_ = operation_of(*plan_.header(1), 4004, 1992);
  EXPECT_EQ(op_.tile_count, 2u);
  EXPECT_EQ(count(), 0u);
}

TEST_F(NotBound, ScaledInputs) {
  op_.reduce_op = ReduceOp::kPremulSum;
  EXPECT_EQ(count(), 0u);
}

TEST_F(NotBound, TablesOfExtents) {
  const GroupExtent extent{0, 4096};
  op_.buffers[uint32_t(BufferKind::kInput)].groups = &extent;
  EXPECT_EQ(count(), 0u);
}

TEST_F(NotBound, OffsetsBeyond32Bits) {
  op_.group_bytes = uint64_t(1) << 33;
  op_.chunk_bytes = op_.tile_bytes = op_.group_bytes / 2;
  EXPECT_EQ(count(), 0u);
}

// It is the buffer that counts, of as many groups as the plan has: of an all_reduce one.
TEST_F(NotBound, PullsOfMoreThanTwoGigabytes) {
  const auto bound = [](const char* name, Collective collective, uint64_t group_bytes) {
    const Plan plan = generate(name, {.collective = collective, .rank_count = 4, .block_count = 2});
    return ProgramBinder(*plan.header(1), operation_of(*plan.header(1), group_bytes)).bind().count != 0;
  };
  constexpr uint64_t kGigabyte = 1 << 30;
  EXPECT_TRUE(bound("ring_put", Collective::kAllReduce, 2 * kGigabyte));
  EXPECT_TRUE(bound("two_shot_pull", Collective::kAllReduce, 2 * kGigabyte));
  EXPECT_FALSE(bound("ring_put", Collective::kAllReduce, 2 * kGigabyte + 16));
  EXPECT_TRUE(bound("ring_put", Collective::kAllGather, kGigabyte / 2));
  EXPECT_FALSE(bound("ring_put", Collective::kAllGather, kGigabyte / 2 + 16));
}

TEST_F(NotBound, Slots) {
  const Plan plan =
      generate("one_shot", {.collective = Collective::kAllReduce, .rank_count = 4, .block_count = 2});
  EXPECT_EQ(ProgramBinder(*plan.header(0), operation_of(*plan.header(0), 4096)).bind().count, 0u);
}

// What peers cannot open is copied first, which the interpreter does.
TEST_F(NotBound, PullsThatBounce) {
  const Plan plan =
      generate("two_shot_pull", {.collective = Collective::kAllReduce, .rank_count = 4, .block_count = 2});
  Operation op = operation_of(*plan.header(0), 1 << 20);
  EXPECT_NE(ProgramBinder(*plan.header(0), op).bind().count, 0u);
  op.bounces[1] = 4096;
  EXPECT_EQ(ProgramBinder(*plan.header(0), op).bind().count, 0u);
}

}  // namespace
}  // namespace starling::device
