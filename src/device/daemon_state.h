// What a block of the daemon keeps in its fast memory, and what it is launched with.
#pragma once
#include "device/completion_queue.h"
#include "device/interpreter.h"
#include "wire/daemon.h"

namespace starling::device {

inline constexpr uint32_t kActiveSlots = 4;

// A context in the block's fast memory; lane L uses slot L % kActiveSlots (direct mapped, DFCCL §5).
struct alignas(16) ActiveSlot {
  Operation operation;
  DynamicContext context;
  uint32_t lane;
  uint32_t valid;
  Lane* near;  // the lane, or a copy of what the host wrote there once, in fast memory
};

// With other tasks in the queue a wait is so much shorter: about what a park and a resume cost on a CPU.
inline constexpr uint64_t kCrowdedShare = 8;
inline constexpr uint32_t kVisitPasses = 4;  // in vain, until a block that roams goes elsewhere

// The block's fast memory: shared memory on a GPU. Written by the leader, read by all after a barrier.
struct alignas(16) BlockState {
  ActiveSlot slots[kActiveSlots];
  uint32_t task_count;
  uint32_t leave;  // LeaveReason + 1; 0: stay
  uint32_t lane;  // of the task at hand
  uint32_t hit;  // its context is in its slot
  uint32_t left;  // tasks that this pass has not looked at, with the one at hand; 0: the pass is over
  uint32_t part;  // which the block serves (device/daemon_block.h)
  uint32_t progressed;  // it has gone on since the block has it
  uint64_t number;  // of the residency, where its first block gives it (DaemonParts::tenure)
  Combine operands;  // of the instruction at hand
  NearEnds ends;  // likewise
};

struct DaemonArguments {
  DaemonMemory* daemon;
  CompletionMemory* completions;
  CompletionQueueKind completion_kind;
  uint64_t launch;  // number of this launch, from 1: of the residency, too, but where there are watches
  std::byte* pool_base;  // first slot of this rank's pool
  uint32_t stays = 0;  // 1: only the host ends this residency, or the exiting submission
  uint32_t guards = 0;  // 1: its first kernel has one block, and helpers come and go (device/daemon_block.h)
  uint32_t first = 0;  // number of the kernel's first block; helpers' is 1
  uint32_t tenured = 0;  // 1: there may be watches, so residencies get their numbers when they begin
  const uint64_t* awaited = nullptr;  // of a watch: its stream stands until *awaited is `until`, or later
  uint64_t until = 0;
};

STARLING_HOST_DEVICE inline bool helps(const DaemonArguments& arguments) { return arguments.first != 0; }
STARLING_HOST_DEVICE inline bool watches(const DaemonArguments& arguments) {
  return arguments.awaited != nullptr;
}

// Of a block to a part.
struct Visit {
  uint64_t launched_at;
  bool first;  // the block has just begun
  bool gives_way;  // DaemonBlock::gives_way()
};

}  // namespace starling::device
