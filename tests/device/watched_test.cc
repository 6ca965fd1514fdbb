// Goal: no more streams have watches at a time than the limit says, and places come free again; and watches
// are woken one after the other, until one serves.
// Method: entries of operations of five streams, put in and completed by hand; and words of a lane that stand
// for what streams, blocks and callers store.
// sanitize: address (one thread)
#include "device/watched.h"

#include <gtest/gtest.h>

#include "machine/cpu/machine.h"

namespace starling::device {
namespace {

Stream stream(uintptr_t number) { return reinterpret_cast<Stream>(number); }

TEST(Watched, AStreamHasOnePlaceForAllItsOperations) {
  WatchedStreams watched(1);
  StreamEntry first{}, second{};
  watched.add(first, stream(0));  // the default stream has no other handle
  watched.add(second, stream(0));
  EXPECT_FALSE(watched.has_place(stream(1)));
  watched.completed(first);
  EXPECT_TRUE(watched.has_place(stream(0)));
  EXPECT_FALSE(watched.has_place(stream(1)));
  watched.completed(second);
  EXPECT_FALSE(watched.any());
  EXPECT_TRUE(watched.has_place(stream(1)));
}

TEST(Watched, OneOperationOfSeveralStreams) {
  WatchedStreams watched(2);
  StreamEntry entry{}, other{};
  watched.add(entry, stream(1));
  watched.add(entry, stream(2));
  watched.add(entry, stream(2));  // it waits twice, and counts once
  EXPECT_FALSE(watched.has_place(stream(3)));
  watched.add(other, stream(2));
  watched.completed(entry);
  EXPECT_TRUE(watched.any());
  EXPECT_TRUE(watched.has_place(stream(3)));
  watched.completed(other);
  EXPECT_FALSE(watched.any());
}

TEST(Watched, NoMoreThanThereAreBits) {
  WatchedStreams watched(100);
  StreamEntry entries[kMostWatched] = {};
  for (uint32_t k = 0; k < kMostWatched; ++k) watched.add(entries[k], stream(k + 1));
  EXPECT_FALSE(watched.has_place(stream(kMostWatched + 1)));
  for (const StreamEntry& entry : entries) watched.completed(entry);
  EXPECT_FALSE(watched.any());
  EXPECT_FALSE(WatchedStreams(0).has_place(stream(1)));
}

constexpr uint32_t kDepth = 4;
constexpr uint64_t kTurn = 10, kServed = 100;  // ns

// A lane with operations 0 to 3, each with a watch in its stream.
struct Turns {
  Turns() {
    handover.done = done;
    handover.came = came;
    handover.depth = kDepth;
    for (uint64_t s = 0; s < kDepth; ++s) {
      entries[s].stands = s;
      note_watch_put(machine, handover, s);
    }
  }
  // At `now`. The operation that is woken; -1: none.
  int64_t look(uint64_t now, bool needed = true) {
    WatchLook all;
    for (uint64_t s = 0; s < kDepth; ++s) all.add(machine, {&entries[s], &handover, s});
    const Watched* const woken = turns.take(machine, all, needed, {now, kTurn, kServed, completed});
    return woken == nullptr ? -1 : int64_t(woken->sequence);
  }
  // A stream that waits for it would go on.
  bool is_released(uint64_t s) const { return int64_t(done[s].told - (s + 1)) >= 0; }
  void complete(uint64_t s, uint64_t now) {
    done[s].done = done[s].told = s + 1;
    completed = now;
  }

  cpu::CpuMachine machine{0, {}, nullptr, nullptr};
  Done done[kDepth] = {};
  uint64_t came[2 * kDepth] = {};
  Handover handover{};
  StreamEntry entries[kDepth] = {};
  WatchTurns turns;
  uint64_t completed = 0;
};

TEST(WatchTurns, OneAfterTheOtherUntilOneComes) {
  Turns t;
  EXPECT_EQ(t.look(1000), 0);
  EXPECT_EQ(t.look(1000 + kTurn - 1), -1);
  EXPECT_TRUE(t.is_released(0));
  EXPECT_EQ(t.look(1000 + kTurn), -1);
  EXPECT_FALSE(t.is_released(0)) << "its turn is over";
  EXPECT_EQ(t.look(1000 + 2 * kTurn - 1), -1) << "it may have gone on just then";
  EXPECT_EQ(t.look(1000 + 2 * kTurn), 1);
  t.came[1] = 2;
  EXPECT_EQ(t.look(1001 + 2 * kTurn), -1);
  EXPECT_FALSE(t.is_released(1)) << "no other stream that comes to stand for it is to come";
  EXPECT_EQ(t.look(1000 + 4 * kTurn), -1) << "one serves";
  t.complete(1, 1000 + 4 * kTurn);
  EXPECT_EQ(t.look(1001 + 4 * kTurn), 2);
}

TEST(WatchTurns, AllHaveAsMany) {
  Turns t;
  for (uint64_t k = 0; k < 3 * kDepth; ++k) {
    EXPECT_EQ(t.look(1000 + 2 * k * kTurn), int64_t(k % kDepth));
    EXPECT_EQ(t.look(1000 + (2 * k + 1) * kTurn), -1);
  }
}

// Where it has gone on in the moment in which it was told to sleep.
TEST(WatchTurns, WhoComesLateServesAllTheSame) {
  Turns t;
  EXPECT_EQ(t.look(1000), 0);
  EXPECT_EQ(t.look(1000 + kTurn), -1);
  t.came[0] = 1;
  EXPECT_EQ(t.look(1000 + 2 * kTurn), -1);
  t.came[0] = 5;  // a stream that waited for a later operation of its place overwrites it
  EXPECT_EQ(t.look(1000 + 3 * kTurn), -1);
}

// Its launch stands in the driver: the stream has passed its wait, and no watch is behind that.
TEST(WatchTurns, AWatchThatIsNotPutServesNobody) {
  Turns t;
  t.completed = 1000;
  t.came[kDepth] = t.came[kDepth + 1] = 0;
  t.came[0] = 1;
  EXPECT_EQ(t.look(1000), 2) << "nor has one such a turn";
  EXPECT_EQ(t.look(1000 + kTurn), -1);
  note_watch_put(t.machine, t.handover, 0);
  EXPECT_EQ(t.look(1000 + 2 * kTurn), -1) << "it serves now";
}

TEST(WatchTurns, WhoServesInVainIsNotTheLast) {
  Turns t;
  EXPECT_EQ(t.look(1000), 0);
  t.came[0] = 1;
  EXPECT_EQ(t.look(1001), -1) << "it need not be woken any more";
  EXPECT_EQ(t.look(1000 + kServed - 1), -1);
  EXPECT_EQ(t.look(1000 + kServed), 1);
  t.came[1] = 2;
  const uint64_t then = 1000 + kServed;
  EXPECT_EQ(t.look(then + 1), -1);
  EXPECT_EQ(t.look(then + 2 * kServed - 1), -1) << "twice as long";
  EXPECT_EQ(t.look(then + 2 * kServed), 2);
  t.came[2] = 3;
  EXPECT_EQ(t.look(then + 2 * kServed + 1), -1);
  t.complete(0, then + 3 * kServed);
  EXPECT_EQ(t.look(then + 4 * kServed - 1), -1);
  EXPECT_EQ(t.look(then + 4 * kServed), 3) << "something had completed";
}

TEST(WatchTurns, ADaemonThatComesLetsThemSleep) {
  Turns t;
  EXPECT_EQ(t.look(1000), 0);
  EXPECT_EQ(t.look(1001, false), -1);
  EXPECT_FALSE(t.is_released(0));
  EXPECT_EQ(t.look(1000 + 9 * kTurn, false), -1);
}

TEST(WatchTurns, WhatPoisonHasReleasedStaysSo) {
  Turns t;
  EXPECT_EQ(t.look(1000), 0);
  t.done[0].done = 1 + kPoison;
  EXPECT_EQ(t.look(1000 + kTurn), 1) << "its streams go on";
  let_watches_sleep(t.machine, t.handover, 0);
  EXPECT_TRUE(t.is_released(0));
}

// One whose place an earlier operation has yet is not woken for good.
TEST(WatchTurns, WokenAgainWhileItsTurnLasts) {
  Turns t;
  EXPECT_EQ(t.look(1000), 0);
  t.done[0].told = 0;  // that one completes
  EXPECT_EQ(t.look(1001), -1);
  EXPECT_TRUE(t.is_released(0));
}

}  // namespace
}  // namespace starling::device
