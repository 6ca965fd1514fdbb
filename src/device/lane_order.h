// Which operations of a lane wait until others are out of its connectors. Host code, which the simulator runs
// too.
//
// Canonical plans (wire/plan.h) give each connection to the same block, so a block's own order is enough. In
// any other plan a connection may be another block's: all operations before it have to be complete, and all
// those behind it begin when it is. Operation::fence_previous asks for the one before it alone, and only of
// blocks that have a part; the rest follows from how operations are placed.
#pragma once
#include <algorithm>
#include <cstdint>

#include "wire/plan.h"

namespace starling::device {

class LaneOrder {
 public:
  LaneOrder() = default;
  // Of captured operations: what is before the first one is the end of the last replay, which is not known.
  static LaneOrder of_capture() {
    LaneOrder order;
    order.settled_ = 0;
    return order;
  }

  // May the lane's next operation go to the device? `on_device`: its operations that are not complete.
  // `turns`: blocks without a part count as well, so who is complete has all blocks behind it. Without turns
  // a block that had no part in the last operation may still be in one before.
  bool may_follow(const PlanHeader& plan, uint64_t on_device, bool turns) const {
    return plan.canonical || turns || on_device == 0 || last_ >= widest_;
  }

  // It goes: must it fence? Behind a plan that is not canonical each block has to come by one fence: with the
  // first operation that has a part for it.
  bool place(const PlanHeader& plan, uint64_t on_device) {
    last_ = plan.block_count;
    widest_ = on_device == 0 ? last_ : std::max(widest_, last_);
    const bool fences = !plan.canonical || last_ > settled_;
    settled_ = plan.canonical ? std::max(settled_, last_) : 0;
    return fences;
  }

 private:
  uint32_t last_ = 0;  // blocks of the operation that was placed last
  uint32_t widest_ = 0;  // of those since the device had none
  uint32_t settled_ = ~0u;  // blocks 0 .. settled_ - 1 have fenced since the last plan that is not canonical
};

}  // namespace starling::device
