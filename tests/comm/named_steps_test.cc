// Goal: what is said of buffers to links is right: a source that is lent is written by nobody else, a place
// that is told is touched by nobody else, and messages are numbered as blocks post and read them. Method: the
// library's plans, bound to buffers of all kinds; each step is held against the plan, byte for byte and
// message for message.
// sanitize: address (one thread)
#include "comm/named_steps.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "plan/generate.h"

namespace starling {
namespace {

constexpr uint32_t kBlocks = 2;

struct Case {
  const char* algorithm;
  Collective collective;
  uint32_t ranks = 2;
  bool in_place = false;
  std::vector<bool> carried = {};  // default: all others
};

// A rank's part of an operation, in memory of its own.
struct Bound {
  Bound(const Case& c, uint32_t rank, uint64_t group_bytes, uint64_t tile_bytes) {
    PlanRequest request;
    request.collective = c.collective;
    request.rank_count = c.ranks;
    request.block_count = kBlocks;
    request.in_place = c.in_place;
    plan = std::make_shared<Plan>(generate(c.algorithm, request));
    const PlanHeader& header = *plan->header(rank);
    op.plan = &header;
    op.group_bytes = group_bytes;
    op.chunk_bytes = ((group_bytes + header.chunks_per_group - 1) / header.chunks_per_group + 15) & ~15ull;
    op.tile_bytes = tile_bytes;
    op.tile_count = (op.chunk_bytes + tile_bytes - 1) / tile_bytes;
    memory.resize((header.input_groups + header.output_groups) * group_bytes);
    std::byte* input = memory.data();
    std::byte* output = memory.data() + header.input_groups * group_bytes;
    if (c.in_place && header.input_groups < header.output_groups) input = output + rank * group_bytes;
    if (c.in_place && header.input_groups >= header.output_groups)
      output = input + (header.input_groups > header.output_groups ? rank * group_bytes : 0);
    op.buffers[uint32_t(BufferKind::kInput)].base = input;
    op.buffers[uint32_t(BufferKind::kOutput)].base = output;
    std::vector<bool> carried = c.carried;
    for (uint32_t peer = 0; c.carried.empty() && peer < c.ranks; ++peer) carried.push_back(peer != rank);
    steps.find(op, carried);
  }
  std::shared_ptr<Plan> plan;
  Operation op{};
  std::vector<std::byte> memory;
  NamedSteps steps;
};

// Bytes of an instruction's slice, of one tile.
struct Slice {
  const std::byte* begin;
  uint64_t bytes;
};
Slice slice_of(const Operation& op, const Instruction& i, bool source, uint64_t tile) {
  const BufferKind kind = source ? i.source_buffer : i.destination_buffer;
  const TileRange range = tile_range(op, i, 0, tile);
  const BufferBinding& buffer = op.buffers[uint32_t(kind)];
  return {buffer.base + chunk_begin(op, buffer, kind, source ? i.source_chunk : i.destination_chunk) +
              range.offset_bytes,
          range.bytes};
}

// What blocks do in their order, message by message.
void check(const Bound& bound, const std::string& title) {
  SCOPED_TRACE(title);
  const Operation& op = bound.op;
  const PlanView plan{op.plan};
  std::map<std::tuple<bool, uint16_t, uint16_t>, uint64_t> counts;
  std::vector<uint64_t> seen(bound.steps.steps().size());
  for (uint32_t b = 0; b < op.plan->block_count; ++b) {
    const BlockPlan& block = plan.blocks()[b];
    for (uint64_t tile = 0; tile < op.tile_count; ++tile)
      for (uint32_t n = 0; n < block.instruction_count; ++n) {
        const Instruction& i = plan.instructions()[block.instruction_first + n];
        if (tile_range(op, i, 0, tile).bytes == 0) continue;
        for (const bool sent : {false, true}) {
          const uint32_t fan =
              sent ? (sends(i.opcode) ? i.send_count : 0) : (receives(i.opcode) ? i.receive_count : 0);
          for (uint32_t k = 0; k < fan; ++k) {
            const Connection& c = plan.connections()[sent ? block.send_first + i.send_first + k
                                                          : block.receive_first + i.receive_first + k];
            const uint64_t message = counts[{sent, c.peer, c.channel}]++;
            for (size_t s = 0; s < seen.size(); ++s) {
              const NamedStep& step = bound.steps.steps()[s];
              if (step.sends != sent || step.peer != c.peer || step.channel != c.channel) continue;
              if (message < step.before || (message - step.before) % step.stride != 0) continue;
              const uint64_t place = (message - step.before) / step.stride;
              if (place >= step.messages) continue;
              const Slice slice = slice_of(op, i, sent && !writes_destination(i.opcode), tile);
              EXPECT_EQ(slice.begin, step.at + place * op.tile_bytes);
              EXPECT_LE(place * op.tile_bytes + slice.bytes, step.bytes);
              ++seen[s];
            }
          }
        }
      }
  }
  for (size_t s = 0; s < seen.size(); ++s) {
    const NamedStep& step = bound.steps.steps()[s];
    EXPECT_EQ(seen[s], step.messages);
    // Who else touches its bytes?
    uint32_t writers = 0, touches = 0;
    for (uint32_t n = 0; n < op.plan->instruction_count; ++n) {
      const Instruction& i = plan.instructions()[n];
      bool writes = false, touched = false;
      for (uint64_t tile = 0; tile < op.tile_count; ++tile)
        for (const bool source : {true, false}) {
          if (source ? !reads_source(i.opcode) : !writes_destination(i.opcode)) continue;
          const Slice slice = slice_of(op, i, source, tile);
          if (slice.bytes == 0 || slice.begin >= step.at + step.bytes || slice.begin + slice.bytes <= step.at)
            continue;
          touched = true;
          writes |= !source;
        }
      writers += writes;
      touches += touched;
    }
    EXPECT_LE(writers, 1u);
    EXPECT_TRUE(step.sends || touches == 1) << "it may come while others are there";
    EXPECT_TRUE(!step.sends || step.buffer == BufferKind::kOutput || writers == 0);
  }
}

size_t count(const Bound& bound, bool sends) {
  size_t found = 0;
  for (const NamedStep& step : bound.steps.steps()) found += step.sends == sends;
  return found;
}

const Case kCases[] = {
    {"pairwise", Collective::kAllToAll},          {"pairwise", Collective::kAllToAll, 4},
    {"all_pairs", Collective::kAllGather, 3},     {"ring", Collective::kAllGather},
    {"ring", Collective::kAllGather, 4},          {"direct", Collective::kGather, 3},
    {"direct", Collective::kScatter, 3},          {"direct", Collective::kBroadcast, 3},
    {"chain", Collective::kBroadcast, 3},         {"ring", Collective::kReduceScatter, 3},
    {"all_pairs", Collective::kReduceScatter, 3}, {"ring", Collective::kAllReduce},
    {"ring", Collective::kAllReduce, 4},          {"two_shot", Collective::kAllReduce, 3},
};

TEST(NamedSteps, AreWhatBlocksDo) {
  for (Case c : kCases)
    for (const bool in_place : {false, true})
      for (const uint64_t group_bytes : {4096ull, 4096ull + 16, 1000ull, 8192ull - 4, 16ull})
        for (uint32_t rank = 0; rank < c.ranks; ++rank) {
          c.in_place = in_place;
          check(Bound(c, rank, group_bytes, 256),
                std::string(c.algorithm) + " of " + std::to_string(c.ranks) +
                    (in_place ? " in place, " : ", ") + std::to_string(group_bytes) + " bytes, rank " +
                    std::to_string(rank));
        }
}

TEST(NamedSteps, AreAllOfAnAllToAll) {
  const Bound bound({"pairwise", Collective::kAllToAll, 4}, 1, 4096, 256);
  EXPECT_EQ(bound.steps.hints(), kByReference | kInPlace);
  EXPECT_EQ(count(bound, true), 3 * kBlocks);
  EXPECT_EQ(count(bound, false), 3 * kBlocks);
}

TEST(NamedSteps, AreNoneOfAnAllToAllInPlace) {
  const Bound bound({"pairwise", Collective::kAllToAll, 4, true}, 1, 4096, 256);
  EXPECT_EQ(bound.steps.hints(), 0);
  EXPECT_TRUE(bound.steps.steps().empty());
}

TEST(NamedSteps, AreAllOfAnAllGatherInPlace) {
  const Bound bound({"all_pairs", Collective::kAllGather, 3, true}, 2, 4096, 256);
  EXPECT_EQ(bound.steps.hints(), kByReference | kInPlace);
  EXPECT_EQ(count(bound, true), 2 * kBlocks);
  EXPECT_EQ(count(bound, false), 2 * kBlocks);
}

// What is passed on as it came needs no slot either.
TEST(NamedSteps, AreAllOfARing) {
  const Bound bound({"ring", Collective::kAllGather, 3}, 0, 4096, 256);
  EXPECT_EQ(bound.steps.hints(), kByReference | kOutputByReference | kInPlace);
  EXPECT_EQ(count(bound, true), 2 * kBlocks);
  EXPECT_EQ(count(bound, false), 2 * kBlocks);
}

// What is reduced is read out of slots; sums go out of the output.
TEST(NamedSteps, AreNotWhatIsReduced) {
  const Bound apart({"ring", Collective::kAllReduce}, 0, 4096, 256);
  EXPECT_EQ(apart.steps.hints(), kByReference | kOutputByReference | kInPlace);
  EXPECT_EQ(count(apart, true), 2 * kBlocks);
  EXPECT_EQ(count(apart, false), 1 * kBlocks);
  const Bound in_place({"ring", Collective::kAllReduce, 2, true}, 0, 4096, 256);
  EXPECT_EQ(in_place.steps.hints(), kOutputByReference);
  EXPECT_EQ(count(in_place, true), 1 * kBlocks);
}

// Ranks of this host read slots.
TEST(NamedSteps, AreThoseBetweenHosts) {
  const Bound bound({"pairwise", Collective::kAllToAll, 4, false, {false, false, true, true}}, 0, 4096, 256);
  EXPECT_EQ(count(bound, true), 2 * kBlocks);
  EXPECT_EQ(count(bound, false), 2 * kBlocks);
  for (const NamedStep& step : bound.steps.steps()) EXPECT_GE(step.peer, 2);
  const Bound fan({"all_pairs", Collective::kAllGather, 4, false, {false, false, true, true}}, 0, 4096, 256);
  EXPECT_EQ(count(fan, true), 0u) << "one message of it goes to a rank of this host, by its slot";
  EXPECT_EQ(count(fan, false), 2 * kBlocks);
}

// Of two operations in a row: what the second one receives may come amid the first.
TEST(Conflicts, AreWritesWhereOthersReadOrWrite) {
  const Case gather{"ring", Collective::kAllGather};
  const Bound a(gather, 0, 4096, 1024);
  Bound b(gather, 0, 4096, 1024);
  const auto input = [](Bound& of) -> std::byte*& {
    return of.op.buffers[uint32_t(BufferKind::kInput)].base;
  };
  const auto output = [](Bound& of) -> std::byte*& {
    return of.op.buffers[uint32_t(BufferKind::kOutput)].base;
  };
  Bound first = a;
  EXPECT_FALSE(conflict(first.op, b.op));
  input(b) = input(first);
  EXPECT_FALSE(conflict(first.op, b.op)) << "both read";
  std::byte* const own_output = output(b);
  output(b) = output(first);
  EXPECT_TRUE(conflict(first.op, b.op)) << "both write";
  output(b) = input(first) - 2 * 4096 + 1;
  EXPECT_TRUE(conflict(first.op, b.op)) << "it writes the last byte that the other reads";
  EXPECT_TRUE(conflict(b.op, first.op)) << "and the other way round";
  output(b) = input(first) - 2 * 4096;
  EXPECT_FALSE(conflict(first.op, b.op)) << "it ends before";
  output(b) = own_output;
  input(b) = output(first) + 4096;
  EXPECT_TRUE(conflict(first.op, b.op)) << "it reads what the other writes";
}

}  // namespace
}  // namespace starling
