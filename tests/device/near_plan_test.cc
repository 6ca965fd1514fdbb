// Goal: what a block reads of its own part of a plan is what it would read of the whole: its lists, its
// connections, what it waits for; in the room that it has, and in no more.
// Method: every built-in plan for several ranks and blocks, and plans whose blocks wait for each other,
// brought near by several threads in turn, whole and in part, beside the plan itself.
// sanitize: address (one thread)
#include "device/near_plan.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "machine/sim/crossing_plan.h"
#include "plan/all_plans.h"

namespace starling::device {
namespace {

// The block's fast memory, and one of its threads at a time.
struct Block {
  static constexpr uint32_t kThreads = 0;
  std::vector<std::byte> memory;
  uint32_t room, block, thread = 0, threads = 3;

  struct Stage {
    std::byte* memory;
    uint32_t bytes;
  };
  bool stages() const { return true; }
  Stage plan_stage(uint32_t) { return {memory.data(), room}; }
  void copy_near(std::byte* to, const void* from, uint32_t bytes) {
    ASSERT_GE(to, memory.data());
    ASSERT_LE(to + bytes, memory.data() + room);
    const auto* source = static_cast<const std::byte*>(from);
    for (uint32_t k = thread; k < bytes; k += threads) to[k] = source[k];
  }
  uint32_t thread_index() const { return thread; }
  uint32_t thread_count() const { return threads; }
  uint32_t block_index() const { return block; }
};

bool equal(const auto* a, const auto* b, uint64_t count) {
  return count == 0 || std::memcmp(a, b, count * sizeof *a) == 0;
}

// As the interpreter reads it.
void expect_equal(const PlanView& near, const PlanView& far, uint32_t b) {
  const BlockPlan& ours = own_block(near, b);
  const BlockPlan& whole = far.blocks()[b];
  ASSERT_EQ(ours.instruction_count, whole.instruction_count);
  ASSERT_EQ(ours.receive_count, whole.receive_count);
  ASSERT_EQ(ours.send_count, whole.send_count);
  const Instruction* const instructions = near.instructions() + ours.instruction_first;
  EXPECT_TRUE(equal(instructions, far.instructions() + whole.instruction_first, ours.instruction_count));
  EXPECT_TRUE(equal(near.connections() + ours.receive_first, far.connections() + whole.receive_first,
                    ours.receive_count));
  EXPECT_TRUE(
      equal(near.connections() + ours.send_first, far.connections() + whole.send_first, ours.send_count));
  for (uint32_t n = 0; n < ours.instruction_count; ++n)
    for (uint32_t k = 0; k < instructions[n].dependency_count; ++k) {
      const Dependency& d = near.dependencies()[instructions[n].dependency_first + k];
      const Dependency& there = far.dependencies()[instructions[n].dependency_first + k];
      ASSERT_EQ(d.block, there.block);
      EXPECT_EQ(d.instruction, there.instruction);
      EXPECT_EQ(near.blocks()[d.block].instruction_count, far.blocks()[d.block].instruction_count);
    }
  EXPECT_EQ(near.header->protocol, far.header->protocol);
  EXPECT_EQ(near.header->tile_bytes, far.header->tile_bytes);
  EXPECT_EQ(near.header->hash, far.header->hash);
}

const PlanHeader* bring(Block& block, const PlanHeader* plan) {
  const PlanHeader* near = nullptr;
  block.memory.assign(block.room, std::byte{0xee});
  for (uint32_t t = block.threads; t-- > 0;) {
    block.thread = t;
    near = bring_plan_near(block, 0, plan, plan->total_bytes);
  }
  return near;
}

struct Seen {
  uint32_t parts = 0, with_dependencies = 0;
};

void check(const Plan& plan, Seen& seen) {
  for (uint32_t rank = 0; rank < plan.rank_count(); ++rank) {
    const PlanView far = plan.view(rank);
    for (uint32_t b = 0; b < far.header->block_count; ++b) {
      // As long as the part is, by the plan's own tables.
      PlanHeader part = *far.header;
      if (part.dependency_count == 0) part.block_count = 1;
      part.connection_count = uint32_t(far.blocks()[b].receive_count) + far.blocks()[b].send_count;
      part.instruction_count = far.blocks()[b].instruction_count;
      Block block{{}, uint32_t(bytes_of(part)), b};
      const PlanHeader* near = bring(block, far.header);
      ASSERT_EQ(near, reinterpret_cast<PlanHeader*>(block.memory.data())) << "there is room for it";
      ASSERT_EQ(near->total_bytes, block.room);
      expect_equal({near}, far, b);
      const bool shorter = block.room < far.header->total_bytes;
      seen.parts += shorter;
      seen.with_dependencies += shorter && part.dependency_count != 0;
      block.room -= 4;
      EXPECT_EQ(bring(block, far.header), far.header) << "there is not";
    }
    Block beyond{{}, far.header->total_bytes - 4, far.header->block_count};
    EXPECT_EQ(bring(beyond, far.header), far.header) << "it has no part";
    Block whole{{}, far.header->total_bytes, 0};
    ASSERT_NE(bring(whole, far.header), far.header);
    EXPECT_EQ(std::memcmp(whole.memory.data(), far.header, whole.room), 0);
  }
}

TEST(NearPlan, ABlocksPartIsWhatItReads) {
  Seen seen;
  for (const BuiltIn& built_in : built_ins({2, 4, 6}, {1, 3, 32})) {
    SCOPED_TRACE(built_in.name());
    check(generate(built_in.algorithm, built_in.request), seen);
  }
  EXPECT_GT(seen.parts, 1000u);
}

#ifndef STARLING_SANITIZED  // such plans are the simulator's, which sanitizers' builds have not
TEST(NearPlan, WhoWaitsForOtherBlocksKnowsTheirs) {
  Seen seen;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    sim::Random random(seed, 1);
    const auto ring = std::make_shared<Plan>(generate("ring", {Collective::kAllReduce, 4, 0, 1, false}));
    check(*sim::crossing_plan(ring, 3, random), seen);
  }
  EXPECT_GT(seen.with_dependencies, 20u);
}
#endif

}  // namespace
}  // namespace starling::device
