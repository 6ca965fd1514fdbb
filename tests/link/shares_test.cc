// Goal: striping puts a transfer where the fewest bytes are under way, whatever reports came in what order,
// and some path always takes it. Method: the rule alone, states by hand and by seed; amid failures it is
// explored (explore_test.cc).
// sanitize: address (one thread)
#include "link/shares.h"

#include <gtest/gtest.h>

#include <random>

#include "link/sender.h"

namespace starling::link {
namespace {

constexpr uint64_t kEven = 10;

// A striping sender that has posted so many transfers, each on the path that this says.
SenderState posted(std::initializer_list<uint8_t> paths, uint32_t path_count = 2) {
  SenderState state = new_sender(path_count, Policy::kStriping, 1);
  for (const uint8_t path : paths) state.path_of[state.transmitted++] = path;
  state.posted = state.transmitted;
  return state;
}

LinkMessage report(uint64_t done, uint64_t landed = 0) {
  LinkMessage message{};
  message.done = done;
  message.landed = landed;
  return message;
}

TEST(Shares, ALargeOneGoesWhereNoLargeOneIs) {
  const SenderState state = posted({0, 1, 0});
  const auto bytes = [](uint64_t k) { return k == 1 ? uint64_t{100} : uint64_t{1}; };
  EXPECT_FALSE(has_least_under_way(state, {}, 0b11, 1, kEven, bytes)) << "though fewer transfers are";
  EXPECT_TRUE(has_least_under_way(state, {}, 0b11, 0, kEven, bytes));
  const auto small = [](uint64_t) { return uint64_t{1}; };
  EXPECT_TRUE(has_least_under_way(state, {}, 0b11, 0, kEven, small)) << "they are even";
}

TEST(Shares, WhatHasLandedIsNotUnderWay) {
  const SenderState state = posted({0, 1, 1});
  const auto bytes = [](uint64_t) { return uint64_t{100}; };
  HeardLandings heard{};
  EXPECT_FALSE(has_least_under_way(state, heard, 0b11, 1, kEven, bytes));
  heard.note(report(0, 0b110));
  EXPECT_TRUE(has_least_under_way(state, heard, 0b11, 1, kEven, bytes));
  EXPECT_FALSE(has_least_under_way(state, heard, 0b11, 0, kEven, bytes));
  heard.note(report(0, 0b010));  // an older one, by another path
  EXPECT_TRUE(has_least_under_way(state, heard, 0b11, 1, kEven, bytes));
  heard.note(report(3));
  heard.note(report(1, 0b11));
  EXPECT_EQ(heard.done, 3u);
  EXPECT_TRUE(heard.has(2) && !heard.has(3));
}

TEST(Shares, NobodyWaitsForAPathThatIsNotOpenOrNotUsed) {
  SenderState state = posted({1});
  const auto bytes = [](uint64_t) { return uint64_t{100}; };
  EXPECT_FALSE(has_least_under_way(state, {}, 0b11, 1, kEven, bytes));
  EXPECT_TRUE(has_least_under_way(state, {}, 0b10, 1, kEven, bytes));
  state.use = 0b10;
  EXPECT_TRUE(has_least_under_way(state, {}, 0b11, 1, kEven, bytes));
}

TEST(Shares, SomePathTakesIt) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    std::mt19937_64 random(seed);
    SenderState state = new_sender(3, Policy::kStriping, 1);
    state.transmitted = state.posted = random() % kFlowWindow;
    for (uint64_t k = 0; k < state.transmitted; ++k) state.path_of[k] = uint8_t(random() % 3);
    HeardLandings heard{};
    heard.note(report(random() % (state.transmitted + 1), random()));
    PathSet taken = 0;
    for (uint32_t p = 0; p < 3; ++p)
      if (has_least_under_way(state, heard, 0b111, p, kEven, [&](uint64_t k) { return seed * k % 97; }))
        taken |= bit(p);
    ASSERT_NE(taken, 0) << "seed " << seed;
  }
}

}  // namespace
}  // namespace starling::link
