// A plan where a block's threads have it near: on a GPU every acquire empties the L1 cache, so what an
// instruction reads again and again must lie in the block's fast memory.
//
// A plan that fits is copied whole, in one round of loads. Of a longer one a block takes its own part, which
// is a plan again, of one block, so that it does not matter how many blocks run it:
//
//   far    header | blocks | connections of all | instructions of all | dependencies of all
//   near   header | own    | own                | own                 |
//
// Who waits for other blocks has to know how long their lists are: a plan with dependencies keeps the tables
// of blocks and of dependencies whole. What is still too long stays where it is.
#pragma once
#include "device/machine.h"
#include "wire/plan.h"

namespace starling::device {

// Of what a block was given, which may be its own part.
STARLING_HOST_DEVICE inline const BlockPlan& own_block(const PlanView& plan, uint32_t block) {
  return plan.blocks()[plan.header->block_count == 1 ? 0 : block];
}

// All threads; a barrier must follow. False: there is no room for it, or the block has no part: a daemon's
// blocks look at every operation, also at those of fewer blocks.
template <class M>
STARLING_HOST_DEVICE bool copy_own_part(M& m, std::byte* to, uint32_t room, const PlanView& far) {
  if (m.block_index() >= far.header->block_count) return false;
  const BlockPlan ours = far.blocks()[m.block_index()];
  PlanHeader header = *far.header;
  if (header.dependency_count == 0) header.block_count = 1;
  header.connection_count = uint32_t(ours.receive_count) + ours.send_count;
  header.instruction_count = ours.instruction_count;
  header.total_bytes = uint32_t(bytes_of(header));
  if (header.total_bytes > room) return false;
  const auto list = [&](uint64_t at, const auto* from, uint64_t count) {
    m.copy_near(to + at, from, uint32_t(count * sizeof *from));
  };
  const uint32_t own = header.block_count == 1 ? 0 : m.block_index();
  const uint64_t own_at = sizeof(PlanHeader) + own * sizeof(BlockPlan);
  list(sizeof(PlanHeader), far.blocks(), own);
  list(own_at + sizeof(BlockPlan), far.blocks() + own + 1, header.block_count - own - 1);
  const uint64_t sends_at = connections_at(header) + ours.receive_count * sizeof(Connection);
  list(connections_at(header), far.connections() + ours.receive_first, ours.receive_count);
  list(sends_at, far.connections() + ours.send_first, ours.send_count);
  list(instructions_at(header), far.instructions() + ours.instruction_first, ours.instruction_count);
  list(dependencies_at(header), far.dependencies(), header.dependency_count);
  if (!leads(m)) return true;
  *reinterpret_cast<PlanHeader*>(to) = header;
  *reinterpret_cast<BlockPlan*>(to + own_at) = {
      0, ours.instruction_count, 0, ours.receive_count, ours.send_count, ours.receive_count, 0};
  return true;
}

// All threads; a barrier must follow. `bytes`: the plan's total_bytes, so that nobody need look at its header
// first. `slot`: of the block's fast memory.
template <class M>
STARLING_HOST_DEVICE const PlanHeader* bring_plan_near(M& m, uint32_t slot, const PlanHeader* plan,
                                                       uint32_t bytes) {
  if (!m.stages()) return plan;
  const auto stage = m.plan_stage(slot);
  if (bytes <= stage.bytes)
    m.copy_near(stage.memory, plan, bytes);
  else if (!copy_own_part(m, stage.memory, stage.bytes, PlanView{plan}))
    return plan;
  return reinterpret_cast<const PlanHeader*>(stage.memory);
}

}  // namespace starling::device
