// Goal: what enters a stream is alone where all that is under way is before it there, and nowhere else.
// Method: operations put in and completed by hand, over a device on which nothing runs.
// sanitize: address (one thread)
#include "device/stream_host.h"

#include <gtest/gtest.h>

#include "device/still_device.h"
#include "machine/cpu/machine.h"

namespace starling::device {
namespace {

class StreamHostTest : public testing::Test {
 protected:
  StreamFacts facts() {
    StreamFacts facts{};
    facts.launch_limit = 1000;
    facts.gate_limit = facts.start_limit = facts.watch_limit = 8;
    facts.daemon_first = 1;
    facts.quit_ns = kQuitNs;
    facts.alone = &words_;
    return facts;
  }
  static StreamPolicy policy() {
    StreamPolicy policy;
    policy.watches = true;
    return policy;
  }
  DaemonArguments daemon() const { return {}; }

  static StreamCall call(Stream stream, bool held) {
    StreamCall call{};
    call.stream = stream;
    call.held = held;
    call.connected = call.room = true;
    return call;
  }
  StreamEntry enter(Stream stream, bool held = true) {
    EXPECT_TRUE(host_.may_enter(call(stream, held)));
    return host_.enter(call(stream, held));
  }

  static constexpr uint64_t kQuitNs = 1000;

  AloneWords words_{};
  SubmissionRing submissions_{};
  uint64_t work_ = 0, drain_ = 0;
  StillDevice device_;
  cpu::CpuMachine machine_{0, {}, nullptr, nullptr};
  StreamHost<cpu::CpuMachine, StillDevice> host_{machine_, device_,  facts(),
                                                 policy(), daemon(), {&submissions_, 0, &work_, &drain_}};
  const Stream one_ = &words_, other_ = &work_;
};

TEST_F(StreamHostTest, OneStreamsOperationsAreAlone) {
  const StreamEntry first = enter(one_), second = enter(one_);
  EXPECT_TRUE(first.alone);
  EXPECT_TRUE(second.alone);
  EXPECT_EQ(first.patience, second.patience);
}

TEST_F(StreamHostTest, BehindOneThatWasNotAloneTheNextIs) {
  host_.note_replays(true);  // of a graph
  const StreamEntry first = enter(one_), second = enter(one_);
  EXPECT_FALSE(first.alone);
  EXPECT_FALSE(second.alone);
  EXPECT_NE(first.watches, 0u);
  host_.note_replays(false);
  const StreamEntry third = enter(one_), fourth = enter(one_);
  EXPECT_TRUE(third.alone);
  EXPECT_TRUE(fourth.alone);
  EXPECT_EQ(third.watches, 0u);
  host_.completed(first);
  host_.completed(second);
  EXPECT_TRUE(enter(one_).alone);
}

// Completions are read lane by lane, so that of one behind another may be read first.
TEST_F(StreamHostTest, WhoIsCompleteFirstTakesNobodysPlace) {
  host_.note_replays(true);
  const StreamEntry first = enter(one_);
  host_.note_replays(false);
  host_.completed(enter(one_));
  const StreamEntry last = enter(one_);
  EXPECT_TRUE(last.alone);
  EXPECT_EQ(words_.stay, last.patience + 1);
  host_.serve();
  EXPECT_EQ(device_.daemons, 0u);
  host_.completed(first);
}

TEST_F(StreamHostTest, ThoseThatBeginTogetherAreAllAloneOrNone) {
  host_.note_replays(true);
  const StreamCall first = call(one_, true);
  StreamCall second = call(one_, true);
  second.joins = true;
  EXPECT_FALSE(host_.enter(first).alone);
  host_.note_replays(false);
  EXPECT_FALSE(host_.enter(second).alone);
  EXPECT_TRUE(host_.enter(first).alone);
  EXPECT_TRUE(host_.enter(second).alone);
}

TEST_F(StreamHostTest, NotBesideAnotherStreams) {
  host_.note_replays(true);
  const StreamEntry first = enter(one_), beside = enter(other_);
  host_.note_replays(false);
  EXPECT_FALSE(enter(one_).alone);
  host_.completed(beside);
  EXPECT_TRUE(enter(one_).alone);
  EXPECT_FALSE(host_.may_enter(call(other_, true)));  // the stream that stands has no watch
  EXPECT_EQ(device_.daemons, 1u);
  host_.completed(first);
}

TEST_F(StreamHostTest, NotBehindOneThatHoldsNothing) {
  host_.note_replays(true);
  const StreamEntry first = enter(one_, false);
  host_.note_replays(false);
  EXPECT_FALSE(enter(one_).alone);
  host_.completed(first);
  EXPECT_TRUE(enter(one_).alone);
}

TEST_F(StreamHostTest, NotWhileADaemonIsThere) {
  host_.note_replays(true);
  enter(one_);
  host_.note_replays(false);
  device_.resident = true;
  work_ = 1;  // a block has left something to it
  host_.serve();
  EXPECT_EQ(device_.daemons, 1u);
  EXPECT_FALSE(enter(one_).alone);
  device_.resident = false;
  EXPECT_TRUE(enter(one_).alone);
}

// A daemon that had to come for those of a row leaves, though the row goes on: who comes then is alone again.
TEST_F(StreamHostTest, WhoStayedForARowLeavesIt) {
  host_.note_replays(true);
  const StreamEntry first = enter(one_);
  host_.note_replays(false);
  const StreamEntry second = enter(one_);
  EXPECT_TRUE(second.alone);
  device_.resident = true;
  work_ = 1;  // of the first
  host_.poll();
  EXPECT_EQ(device_.daemons, 1u);
  StreamEntry last = enter(one_);
  host_.completed(first);
  host_.completed(second);
  const uint64_t needed_until = device_.time_ns;
  while (device_.time_ns < needed_until + kQuitNs) {
    EXPECT_FALSE(last.alone);
    EXPECT_EQ(drain_, 0u) << "it left after " << device_.time_ns - needed_until << " ns";
    const StreamEntry next = enter(one_);
    host_.completed(last);
    last = next;
    device_.time_ns += kQuitNs / 8;
    host_.poll();
  }
  EXPECT_NE(drain_, 0u);
  device_.resident = false;
  EXPECT_TRUE(enter(one_).alone);
  EXPECT_EQ(device_.daemons, 1u);
}

}  // namespace
}  // namespace starling::device
