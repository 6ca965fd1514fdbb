// Goal: no call is lost, or begins twice, whatever its kernel and others do meanwhile; also in orders of
// events that the simulator does not have: operations that fail when they have entered. Method: calls put in
// and completed by hand, over a device that keeps what is launched and runs nothing; what a kernel says is
// stored by the test. sanitize: address (one thread)
#include "device/call_host.h"

#include <gtest/gtest.h>

#include "device/still_device.h"
#include "machine/cpu/machine.h"

namespace starling::device {
namespace {

class CallHostTest : public testing::Test {
 protected:
  static StreamFacts facts_with(CallBox* boxes) {
    StreamFacts facts{};
    facts.calls = boxes;
    facts.call_boxes = 1;
    facts.call_row_ns = facts.call_linger_ns = facts.call_life_ns = 1000;
    return facts;
  }

  StreamEntry enter(uint32_t unit_bytes = 1024) {
    StreamCall call{};
    call.box = 1;
    call.unit_bytes = unit_bytes;
    StreamEntry entry{};
    host_.enter(call, entry);
    return entry;
  }
  StreamEntry call(uint64_t sequence, uint32_t unit_bytes = 1024) {
    const StreamEntry entry = enter(unit_bytes);
    start_.operation.sequence = sequence;
    if (entry.call != CallWay::kStart) host_.put(entry, start_);
    return entry;
  }
  // The kernel leaves, and has taken so many rounds.
  void leave(uint32_t launch, uint32_t round) { box_.left = left_word(launch, round); }

  CallBox box_{};
  StillDevice device_;
  cpu::CpuMachine machine_{0, {}, nullptr, nullptr};
  const StreamFacts facts_ = facts_with(&box_);
  CallHost<cpu::CpuMachine, StillDevice> host_{machine_, device_, facts_};
  StartArguments start_{};
};

TEST_F(CallHostTest, OneKernelTakesARowOfCalls) {
  host_.completed(call(0));
  for (uint64_t sequence = 1; sequence < 5; ++sequence) {
    const StreamEntry entry = call(sequence);
    EXPECT_EQ(entry.call, CallWay::kPut);
    host_.look();
    host_.completed(entry);
  }
  EXPECT_EQ(device_.launched.size(), 1u);
  EXPECT_TRUE(device_.later.empty());
  EXPECT_TRUE(is_of_round(box_.changed[0], 5));
}

TEST_F(CallHostTest, ACallThatNobodyTookIsLaunchedAgain) {
  host_.completed(call(0));
  const StreamEntry entry = call(7);
  leave(1, 1);
  host_.look();
  ASSERT_EQ(device_.later.size(), 1u);
  EXPECT_EQ(device_.later[0].first.operation.sequence, 7u);
  EXPECT_EQ(device_.later[0].round, 2u);
  leave(2, 2);  // it is the daemon's now
  host_.look();
  EXPECT_EQ(device_.later.size(), 1u);
  host_.completed(entry);
}

TEST_F(CallHostTest, WhatHasTooManyBytesSendsTheKernelAway) {
  host_.completed(call(0));
  const StreamEntry larger = call(1, 2048);
  EXPECT_EQ(larger.call, CallWay::kStay);
  EXPECT_EQ(device_.launched.size(), 2u);
  host_.completed(larger);
  EXPECT_EQ(call(2).call, CallWay::kPut);
}

// An operation that does not agree with its peers' fails before it is put in.
TEST_F(CallHostTest, OneThatFailsAtOnceLeavesNoKernelThatIsNotThere) {
  const StreamEntry failed = enter();
  ASSERT_EQ(failed.call, CallWay::kStay);
  host_.completed(failed);
  host_.abandon(failed);
  EXPECT_EQ(call(1).call, CallWay::kStay);
  EXPECT_EQ(device_.launched.size(), 1u);
}

TEST_F(CallHostTest, OneThatFailsAtOnceTakesNoRound) {
  host_.completed(call(0));
  const StreamEntry failed = enter();
  ASSERT_EQ(failed.call, CallWay::kPut);
  host_.completed(failed);
  host_.abandon(failed);
  host_.completed(call(1));
  EXPECT_TRUE(is_of_round(box_.changed[0], 2));  // that the kernel waits for
}

// All operations fail while a caller is between the two: another one must not write into the same box.
TEST_F(CallHostTest, ABoxIsItsCallersUntilTheCallIsPutIn) {
  host_.completed(call(0));
  const StreamEntry slow = enter();
  host_.completed(slow);
  EXPECT_EQ(call(1).call, CallWay::kStart);
  host_.put(slow, start_);
  EXPECT_EQ(call(2).call, CallWay::kPut);
}

}  // namespace
}  // namespace starling::device
