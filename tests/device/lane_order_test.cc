// Goal: operations of a lane fence where a connection may be another block's: around plans that are not
// canonical, and where a capture begins, whose replays come behind each other. Method: sequences of plans.
// sanitize: address (one thread)
#include "device/lane_order.h"

#include <gtest/gtest.h>

namespace starling::device {
namespace {

PlanHeader plan_of(uint8_t blocks, bool canonical) {
  PlanHeader plan{};
  plan.block_count = blocks;
  plan.canonical = canonical;
  return plan;
}

TEST(LaneOrder, EachBlockFencesOnceBehindAPlanThatIsNotCanonical) {
  LaneOrder order;
  EXPECT_FALSE(order.place(plan_of(4, true), 0));
  EXPECT_TRUE(order.place(plan_of(2, false), 1));
  EXPECT_TRUE(order.place(plan_of(1, true), 1));
  EXPECT_FALSE(order.place(plan_of(1, true), 1)) << "block 0 has fenced";
  EXPECT_TRUE(order.place(plan_of(3, true), 1)) << "blocks 1 and 2 have not";
  EXPECT_FALSE(order.place(plan_of(3, true), 1));
}

// What the last replay ended with is not known at the capture.
TEST(LaneOrder, ACaptureBeginsAsBehindAPlanThatIsNotCanonical) {
  LaneOrder order = LaneOrder::of_capture();
  EXPECT_TRUE(order.place(plan_of(1, true), 1));
  EXPECT_FALSE(order.place(plan_of(1, true), 1));
  EXPECT_TRUE(order.place(plan_of(4, true), 1));
  EXPECT_FALSE(order.place(plan_of(2, true), 1));
}

}  // namespace
}  // namespace starling::device
