// What a block needs to run an operation, and what it waits for when it cannot: the interpreter's words.
#pragma once
#include "device/combine.h"
#include "device/ends.h"
#include "device/machine.h"
#include "wire/daemon.h"
#include "wire/lane.h"
#include "wire/operation.h"

namespace starling::device {

// Instructions whose operands a start kernel's block keeps at the same time.
inline constexpr uint32_t kOperandSets = 4;

// How long a block may wait in one instruction; grows with success (DFCCL §4.3).
struct Budget {
  uint64_t ticks;
  uint64_t maximum;
  uint32_t success_factor;
  uint16_t unbounded;
  uint16_t only_heard =
      0;  // only what came from a peer raises it: who is alone yet learns nothing by sending

  // An instruction is done. heard: it took something from a peer.
  STARLING_HOST_DEVICE void raise(bool heard) {
    if (success_factor <= 1 || ticks >= maximum || (only_heard != 0 && !heard)) return;
    const uint64_t raised = ticks * success_factor;
    ticks = raised < maximum ? raised : maximum;
  }
};

// What the interpreter works on. Pointers are the same on all threads of the block.
struct Execution {
  Lane* lane;
  const Operation* operation;
  LaneBlock* block;  // this block's part of the lane
  SlotPool* pool;
  std::byte* pool_base;  // first slot of this rank's pool
  // [operand_sets], in the block's fast memory: each operand is bound by one thread, and read by all after a
  // barrier.
  Combine* operands;
  NearEnds* ends;  // likewise, the connector ends; null: the block works on them where they lie
  uint32_t operand_sets = 1;
};

// A counter that has to be at `target` (cyclic) before a stuck operation can go on; null: none is known.
struct Awaited {
  const uint64_t* word = nullptr;
  uint64_t target = 0;
  uint32_t peer = ~0u;  // rank of the lane that moves it; ~0u: this one
};

}  // namespace starling::device
