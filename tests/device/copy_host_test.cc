// Goal: a copy is put into an engine's queue only when both sides are ready, a side hears of it only when it
// has ended, and a broken lane ends only when no copy of ours is under way.
//
// Method: two ranks' hosts over one memory, an engine whose copies end when the test says so, and steps in
// the order of each case, or in random ones with a seed.
// sanitize: address (one thread)
#include "device/copy_host.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "machine/cpu/machine.h"

namespace starling::device {
namespace {

cpu::WaitPolicy no_waiting() { return {.spins = 1, .idle_spins = 1, .idle_yields = 1, .sleep_ns = 1}; }

struct FakeEngine {
  struct Copy {
    std::byte* to;
    const std::byte* from;
    uint64_t bytes;
  };
  std::vector<Copy> begun;  // to peers
  uint64_t ended = 0;
  uint64_t own_begun = 0, own_ended = 0;
  bool reaches = true;

  uint64_t copy(const CopySend& send) {
    if (send.queue() == CopyQueue::kOwn) return ++own_begun;
    if (!reaches) return 0;
    std::byte* to = reinterpret_cast<std::byte*>(send.offer->address) + send.piece.offset;
    begun.push_back({to, send.from, send.bytes});
    return begun.size();
  }
  uint64_t last(CopyQueue queue) const { return queue == CopyQueue::kOwn ? own_begun : begun.size(); }
  uint64_t completed(CopyQueue queue) const { return queue == CopyQueue::kOwn ? own_ended : ended; }
  // The oldest under way.
  void end_one() {
    std::memcpy(begun[ended].to, begun[ended].from, begun[ended].bytes);
    ++ended;
  }
};

using Host = CopyHost<cpu::CpuMachine, FakeEngine>;
using Step = Host::Step;

// A sender and a receiver of one message of a lane.
struct Message {
  CopyOffer offer{};
  uint64_t sender_fault = 0, receiver_fault = 0;
  uint64_t sender_mark = 0, receiver_mark = 0;
  uint64_t sender_done = 0, receiver_done = 0;
  std::vector<std::byte> input, output;
  CopyJob send, receive;

  Message(uint64_t sequence, size_t bytes)
      : input(bytes, std::byte(sequence + 1)),
        output(bytes),
        send{nullptr,
             sequence,
             &sender_fault,
             &sender_mark,
             &sender_done,
             {{&offer, nullptr, input.data(), nullptr, bytes}},
             {}},
        receive{nullptr,
                sequence,
                &receiver_fault,
                &receiver_mark,
                &receiver_done,
                {},
                {{&offer, output.data(), bytes, 0}}} {}
};

class CopyHostTest : public testing::Test {
 protected:
  FakeEngine engine_, other_engine_;
  cpu::CpuMachine machine_{0, no_waiting(), nullptr, nullptr};
  Host sender_{machine_, engine_};
  Host receiver_{machine_, other_engine_};
};

TEST_F(CopyHostTest, ACopyBeginsWhenBothSidesAreReady) {
  Message m(4, 100);
  m.sender_mark = 5;
  EXPECT_EQ(sender_.step(m.send), Step::kProgress);  // its own stream has come
  EXPECT_EQ(receiver_.step(m.receive), Step::kNothing);
  EXPECT_EQ(m.offer.offered, 0u);
  EXPECT_EQ(sender_.step(m.send), Step::kNothing);
  EXPECT_TRUE(engine_.begun.empty());
  m.receiver_mark = 5;
  EXPECT_EQ(receiver_.step(m.receive), Step::kProgress);
  EXPECT_EQ(m.offer.offered, 5u);
  EXPECT_EQ(sender_.step(m.send), Step::kProgress);
  EXPECT_EQ(engine_.begun.size(), 1u);
}

// A stream must not be made to stand before: who stands may be in the driver, which the engine needs.
TEST_F(CopyHostTest, TheEngineIsNeededUntilTheLastCopyHasBegun) {
  Message m(0, 100);
  m.send.sends.push_back({nullptr, nullptr, m.input.data(), m.input.data() + 50, 10});
  m.sender_mark = 1;
  sender_.step(m.send);
  EXPECT_TRUE(m.send.needs_engine());  // its own part has begun, the other has no offer
  EXPECT_FALSE(m.receive.needs_engine());
  m.receiver_mark = 1;
  receiver_.step(m.receive);
  sender_.step(m.send);
  EXPECT_FALSE(m.send.needs_engine());
  m.receive.shares_driver = true;
  EXPECT_TRUE(m.receive.needs_engine());
}

TEST_F(CopyHostTest, AReceiverAloneBeginsNothing) {
  Message m(0, 100);
  m.receiver_mark = 1;
  EXPECT_EQ(receiver_.step(m.receive), Step::kProgress);
  EXPECT_EQ(sender_.step(m.send), Step::kNothing);
  EXPECT_TRUE(engine_.begun.empty());
}

TEST_F(CopyHostTest, BothAreDoneWhenTheCopyHasEnded) {
  Message m(0, 100);
  m.sender_mark = m.receiver_mark = 1;
  receiver_.step(m.receive);
  sender_.step(m.send);
  EXPECT_EQ(sender_.step(m.send), Step::kNothing);
  EXPECT_EQ(receiver_.step(m.receive), Step::kNothing);
  EXPECT_EQ(m.sender_done + m.receiver_done + m.offer.arrived, 0u);
  engine_.end_one();
  EXPECT_EQ(sender_.step(m.send), Step::kFinished);
  EXPECT_EQ(receiver_.step(m.receive), Step::kFinished);
  EXPECT_EQ(m.sender_done, 1u);
  EXPECT_EQ(m.receiver_done, 1u);
  EXPECT_EQ(m.output, m.input);
}

// Operation s + kCopyDepth finds what operation s left.
TEST_F(CopyHostTest, AnOldOfferIsNotTaken) {
  Message m(kCopyDepth, 100);
  m.offer.offered = m.offer.arrived = 1;
  m.sender_mark = m.receiver_mark = kCopyDepth + 1;
  sender_.step(m.send);
  EXPECT_TRUE(engine_.begun.empty());
  EXPECT_EQ(receiver_.step(m.receive), Step::kProgress);
  EXPECT_EQ(m.receiver_done, 0u);
}

TEST_F(CopyHostTest, ABrokenLaneOffersNothing) {
  Message m(0, 100);
  m.receiver_mark = m.receiver_fault = 1;
  EXPECT_EQ(receiver_.step(m.receive), Step::kFinished);
  EXPECT_EQ(m.offer.offered, 0u);
  EXPECT_EQ(m.receiver_done, 0u);  // the host releases streams, by poison
}

TEST_F(CopyHostTest, ABrokenLaneBeginsNothing) {
  Message m(0, 100);
  m.sender_mark = m.receiver_mark = 1;
  sender_.step(m.send);
  receiver_.step(m.receive);
  m.sender_fault = 1;
  EXPECT_EQ(sender_.step(m.send), Step::kFinished);
  EXPECT_TRUE(engine_.begun.empty());
}

// Until then the receiver's buffer is written: its owner waits for our withdrawal, which waits for this.
TEST_F(CopyHostTest, ABrokenLaneEndsBehindItsCopies) {
  Message m(0, 100);
  m.sender_mark = m.receiver_mark = 1;
  receiver_.step(m.receive);
  sender_.step(m.send);
  m.sender_fault = m.receiver_fault = 1;
  EXPECT_EQ(receiver_.step(m.receive), Step::kFinished);
  for (int k = 0; k < 3; ++k) EXPECT_EQ(sender_.step(m.send), Step::kNothing);
  engine_.end_one();
  EXPECT_NE(sender_.step(m.send), Step::kNothing);
  EXPECT_EQ(m.sender_done, 0u);
}

TEST_F(CopyHostTest, ABufferThatIsNotOpenYetIsAskedForAgain) {
  Message m(0, 100);
  m.sender_mark = m.receiver_mark = 1;
  receiver_.step(m.receive);
  engine_.reaches = false;
  sender_.step(m.send);
  EXPECT_EQ(sender_.step(m.send), Step::kNothing);
  engine_.reaches = true;
  EXPECT_EQ(sender_.step(m.send), Step::kProgress);
  EXPECT_EQ(engine_.begun.size(), 1u);
}

TEST_F(CopyHostTest, TheEnginesQueueIsBounded) {
  std::vector<std::unique_ptr<Message>> messages;
  for (uint64_t k = 0; k < kCopiesUnderWay + 1; ++k) {
    messages.push_back(std::make_unique<Message>(0, 8));
    messages.back()->sender_mark = messages.back()->receiver_mark = 1;
    receiver_.step(messages.back()->receive);
    sender_.step(messages.back()->send);
  }
  EXPECT_EQ(engine_.begun.size(), kCopiesUnderWay);
  engine_.end_one();
  sender_.step(messages.back()->send);
  EXPECT_EQ(engine_.begun.size(), kCopiesUnderWay + 1);
}

TEST_F(CopyHostTest, EmptyMessagesNeedNoCopy) {
  Message m(0, 0);
  m.sender_mark = m.receiver_mark = 1;
  receiver_.step(m.receive);
  EXPECT_EQ(sender_.step(m.send), Step::kFinished);
  EXPECT_EQ(receiver_.step(m.receive), Step::kFinished);
  EXPECT_TRUE(engine_.begun.empty());
}

// Neither of the two stands behind the other, and the operation waits for both.
TEST_F(CopyHostTest, WhatARankKeepsHasAQueueOfItsOwn) {
  Message m(0, 100);
  std::byte own[100];
  m.send.sends.push_back({nullptr, nullptr, m.input.data(), own, sizeof own});
  m.sender_mark = m.receiver_mark = 1;
  EXPECT_EQ(sender_.step(m.send), Step::kProgress);
  EXPECT_EQ(engine_.own_begun, 1u);  // no peer is asked
  EXPECT_TRUE(engine_.begun.empty());
  receiver_.step(m.receive);
  sender_.step(m.send);
  engine_.end_one();
  EXPECT_EQ(sender_.step(m.send), Step::kProgress);
  EXPECT_EQ(receiver_.step(m.receive), Step::kFinished);
  EXPECT_EQ(sender_.step(m.send), Step::kNothing);
  engine_.own_ended = 1;
  EXPECT_EQ(sender_.step(m.send), Step::kFinished);
}

TEST_F(CopyHostTest, ABrokenLaneEndsBehindItsOwnCopyToo) {
  Message m(0, 100);
  std::byte own[100];
  m.send.sends.push_back({nullptr, nullptr, m.input.data(), own, sizeof own});
  m.sender_mark = 1;
  sender_.step(m.send);
  m.sender_fault = 1;
  EXPECT_EQ(sender_.step(m.send), Step::kNothing);
  engine_.own_ended = 1;
  EXPECT_NE(sender_.step(m.send), Step::kNothing);
}

// From one rank over a second one to a third.
TEST_F(CopyHostTest, PiecesArePassedOnAsTheyCome) {
  constexpr uint32_t kPieces = 3;
  constexpr uint64_t kSequence = kCopyDepth + 7;
  Message first(kSequence, 90), second(kSequence, 90);
  const auto in_pieces = [](Message& m, const std::byte* from, int32_t passes_on) {
    m.send.sends.clear();
    for (uint32_t k = 0; k < kPieces; ++k)
      m.send.sends.push_back(
          {&m.offer, nullptr, from + 30 * k, nullptr, 30, {30 * k, k, kPieces}, passes_on});
  };
  in_pieces(first, first.input.data(), -1);
  in_pieces(second, first.output.data(), 0);
  CopyJob& root = first.send;
  CopyJob middle = second.send;
  middle.receives = first.receive.receives;
  first.sender_mark = second.sender_mark = second.receiver_mark = kSequence + 1;
  second.offer.came = pieces_came(7, kPieces - 1);  // of an earlier operation
  first.offer.came = second.offer.came;
  FakeEngine root_engine;
  Host root_host(machine_, root_engine), middle_host(machine_, engine_);
  receiver_.step(second.receive);
  middle_host.step(middle);
  root_host.step(root);
  EXPECT_EQ(root_engine.begun.size(), kPieces);
  for (uint32_t k = 0; k < kPieces; ++k) {
    middle_host.step(middle);
    EXPECT_EQ(engine_.begun.size(), k);
    root_engine.end_one();
    root_host.step(root);
    middle_host.step(middle);
    ASSERT_EQ(engine_.begun.size(), k + 1);
  }
  EXPECT_EQ(first.sender_done, kSequence + 1);
  EXPECT_EQ(second.sender_done, 0u);  // it still passes on
  for (uint32_t k = 0; k < kPieces; ++k) {
    EXPECT_EQ(receiver_.step(second.receive), Step::kNothing);
    engine_.end_one();
    middle_host.step(middle);
  }
  EXPECT_EQ(receiver_.step(second.receive), Step::kFinished);
  EXPECT_EQ(second.sender_done, kSequence + 1);
  EXPECT_EQ(second.output, first.input);
}

// Crossed messages of several lanes, with streams, steps and ends of copies in any order.
TEST_F(CopyHostTest, AllFinishInAnyOrder) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    FakeEngine engines[2];
    Host hosts[2]{{machine_, engines[0]}, {machine_, engines[1]}};
    std::vector<std::unique_ptr<Message>> messages;
    for (uint64_t k = 0; k < 6; ++k) messages.push_back(std::make_unique<Message>(k, random() % 50));
    // Message k goes from rank k % 2 to the other one.
    std::vector<std::pair<CopyJob*, uint64_t>> jobs;
    std::vector<uint64_t*> marks;
    for (uint64_t k = 0; k < messages.size(); ++k) {
      jobs.push_back({&messages[k]->send, k % 2});
      jobs.push_back({&messages[k]->receive, 1 - k % 2});
      marks.push_back(&messages[k]->sender_mark);
      marks.push_back(&messages[k]->receiver_mark);
    }
    for (uint32_t turn = 0; !jobs.empty() && turn < 100'000; ++turn) {
      if (random() % 4 == 0) *marks[random() % marks.size()] = messages.size();
      if (FakeEngine& engine = engines[random() % 2]; random() % 3 == 0 && engine.ended < engine.begun.size())
        engine.end_one();
      const auto at = jobs.begin() + ptrdiff_t(random() % jobs.size());
      if (hosts[at->second].step(*at->first) == Step::kFinished) jobs.erase(at);
    }
    ASSERT_TRUE(jobs.empty());
    for (const auto& message : messages) EXPECT_EQ(message->output, message->input);
  }
}

}  // namespace
}  // namespace starling::device
