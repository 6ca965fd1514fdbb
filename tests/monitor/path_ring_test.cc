// Goal: a path's records come out as they went in, and a reader that is overtaken knows what it missed and
// never sees half a record. Method: by hand; then a writer and two readers at once, with records whose words
// belong together.
#include "monitor/path_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

namespace starling::monitor {
namespace {

TEST(PathRing, RecordsCarryBothTimesAndWhatIsLeft) {
  auto ring = std::make_unique<PathRing>();
  PathRecorder recorder(*ring);
  PathReader reader(*ring);
  TransferRecord record;
  EXPECT_FALSE(reader.next(record));
  recorder.posted(10, 100);
  recorder.posted(20, 50);
  EXPECT_FALSE(reader.next(record)) << "nothing completed yet";
  recorder.completed(70);
  recorder.completed(90);
  ASSERT_TRUE(reader.next(record));
  EXPECT_EQ(record.posted_ns, 10u);
  EXPECT_EQ(record.completed_ns, 70u);
  EXPECT_EQ(record.bytes, 100u);
  EXPECT_EQ(record.left_bytes, 50u);
  ASSERT_TRUE(reader.next(record));
  EXPECT_EQ(record.posted_ns, 20u);
  EXPECT_EQ(record.left_bytes, 0u);
  EXPECT_FALSE(reader.next(record));
}

TEST(PathRing, ACompletionIsNeverBeforeItsPostOrTheLastOne) {
  auto ring = std::make_unique<PathRing>();
  PathRecorder recorder(*ring);
  recorder.posted(10, 1);
  recorder.posted(50, 1);
  recorder.posted(60, 1);
  for (const uint64_t guess : {40, 30, 55}) recorder.completed(guess);
  PathReader reader(*ring);
  for (const uint64_t expected : {40u, 50u, 60u}) {
    TransferRecord record;
    ASSERT_TRUE(reader.next(record));
    EXPECT_EQ(record.completed_ns, expected);
  }
}

TEST(PathRing, WhatWasUnderWayOnAClosedPathLeavesNoRecord) {
  auto ring = std::make_unique<PathRing>();
  PathRecorder recorder(*ring);
  recorder.posted(1, 100);
  recorder.closed();
  recorder.posted(5, 7);
  recorder.completed(6);
  PathReader reader(*ring);
  TransferRecord record;
  ASSERT_TRUE(reader.next(record));
  EXPECT_EQ(record.posted_ns, 5u);
  EXPECT_EQ(record.left_bytes, 0u);
}

TEST(PathRing, ASlowReaderMissesTheOldestAndCountsThem) {
  auto ring = std::make_unique<PathRing>();
  PathRecorder recorder(*ring);
  constexpr uint64_t kRecords = kPathRecords + 100;
  for (uint64_t k = 0; k < kRecords; ++k) {
    recorder.posted(k, 1);
    recorder.completed(k + 1);
  }
  PathReader reader(*ring);
  TransferRecord record;
  uint64_t read = 0, last = 0;
  while (reader.next(record)) {
    last = record.posted_ns;
    ++read;
  }
  EXPECT_EQ(last, kRecords - 1);
  EXPECT_EQ(read + reader.missed(), kRecords);
  EXPECT_EQ(read, kPathRecords - 1);  // one place may be under the writer's pen
}

TEST(PathRing, ACopyThatWasOvertakenIsNotTaken) {
  for (const uint64_t more :
       {uint64_t{kPathRecords} - 2, uint64_t{kPathRecords} - 1, uint64_t{kPathRecords}}) {
    auto ring = std::make_unique<PathRing>();
    PathRecorder recorder(*ring);
    const auto write = [&](uint64_t count) {
      for (uint64_t k = 0; k < count; ++k) {
        recorder.posted(k, 1);
        recorder.completed(k);
      }
    };
    write(1);
    PathReader reader(*ring);
    TransferRecord record;
    ASSERT_TRUE(reader.copy_next(record));
    write(more);
    // With kPathRecords written the next one may be under way, in the place that was copied.
    EXPECT_EQ(reader.take(), 1 + more < kPathRecords) << more;
  }
}

TEST(PathRing, ReadersBesideTheWriterNeverSeeHalfARecord) {
#ifdef STARLING_SANITIZED
  constexpr uint64_t kRecords = 50'000;
#else
  constexpr uint64_t kRecords = 2'000'000;
#endif
  auto ring = std::make_unique<PathRing>();
  struct Seen {
    uint64_t read = 0, missed = 0, torn = 0, last = 0;
  };
  Seen seen[2];
  const auto look = [&](Seen& all) {
    PathReader reader(*ring);
    TransferRecord record{};
    while (all.last < kRecords) {
      if (!reader.next(record)) {
        std::this_thread::yield();
        continue;
      }
      ++all.read;
      all.torn += record.completed_ns != 3 * record.posted_ns || record.bytes != record.posted_ns + 7 ||
                  record.posted_ns <= all.last;
      all.last = std::max(all.last, record.posted_ns);
    }
    all.missed = reader.missed();
  };
  std::thread first([&] { look(seen[0]); }), second([&] { look(seen[1]); });
  PathRecorder recorder(*ring);
  for (uint64_t k = 1; k <= kRecords; ++k) {
    recorder.posted(k, k + 7);
    recorder.completed(3 * k);
  }
  first.join();
  second.join();
  for (const Seen& all : seen) {
    EXPECT_EQ(all.torn, 0u);
    EXPECT_EQ(all.read + all.missed, kRecords);
  }
}

}  // namespace
}  // namespace starling::monitor
