// Goal: pieces of memory where buffers bounce do not meet, are used again, come from few allocations, and
// where there is no more memory that is an error with a remedy. Method: allocations that a test counts and
// bounds.
// sanitize: address (one thread)
#include "machine/registered/bounces.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"

namespace starling {
namespace {

constexpr uint64_t kMiB = uint64_t(1) << 20;

struct Bounced : testing::Test {
  std::byte* allocate(uint64_t bytes) {
    if (bytes > left) return nullptr;
    left -= bytes;
    ++allocations;
    next += 1024 * kMiB;
    return reinterpret_cast<std::byte*>(next);
  }
  // Never looked at.
  std::byte* take(uint64_t bytes) {
    std::byte* memory = bounces.take(bytes);
    const auto after = taken.upper_bound(memory);
    EXPECT_TRUE(after == taken.end() || memory + bytes <= after->first);
    EXPECT_TRUE(after == taken.begin() || std::prev(after)->first + std::prev(after)->second <= memory);
    EXPECT_EQ(uintptr_t(memory) % 256, 0u);
    taken.emplace(memory, bytes);
    return memory;
  }
  void give(std::byte* memory) {
    bounces.give(memory, taken.at(memory));
    taken.erase(memory);
  }

  uint64_t left = 1024 * kMiB;
  int allocations = 0;
  uintptr_t next = 0;
  std::map<std::byte*, uint64_t> taken;
  Bounces bounces{[this](uint64_t bytes) { return allocate(bytes); }};
};

TEST_F(Bounced, PiecesDoNotMeetAndAreUsedAgain) {
  for (uint64_t bytes : {10 * kMiB, 40 * kMiB, 1 * kMiB, 100 * kMiB, 3 * kMiB, 17 * kMiB}) take(bytes);
  const int before = allocations;
  for (int round = 0; round < 100; ++round) {
    std::byte* memory = take(33 * kMiB + uint64_t(round) % 7);
    give(memory);
  }
  EXPECT_LE(allocations, before + 1);
}

TEST_F(Bounced, WhatIsLeftOfASlabIsNotLost) {
  left = 2 * Bounces::kSlabBytes;
  take(16 * kMiB);
  take(Bounces::kSlabBytes);
  take(32 * kMiB);
  take(16 * kMiB);
  EXPECT_EQ(allocations, 2);
}

TEST_F(Bounced, WithoutMemoryForASlabItTakesWhatItNeeds) {
  left = 8 * kMiB;
  take(5 * kMiB);
  try {
    take(5 * kMiB);
    FAIL() << "there was memory for one";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::exhausted);
    for (const char* word : {"8 MiB", "STARLING_PULL=0", "expandable segment"})
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    EXPECT_LT(std::string(error.what()).size(), 440u) << "no room in FaultNote::text beside a rank's name";
  }
}

}  // namespace
}  // namespace starling
