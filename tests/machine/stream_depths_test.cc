// Goal: a stream's depth is an upper bound of what has not begun in it, is known by its own marks, and costs
// no place for ever once the stream is gone.
// Method: streams that are lists of marks here, which a test lets come as far as it wants. Marks of two
// threads may be written the wrong way round, so one test does that.
// sanitize: address (one thread)
#include "machine/cuda/stream_depths.h"

#include <gtest/gtest.h>

#include <deque>
#include <utility>
#include <vector>

namespace starling::cuda {
namespace {

device::Stream stream(uintptr_t number) { return reinterpret_cast<device::Stream>(number); }

class Depths : public ::testing::Test {
 protected:
  void put(uintptr_t number, uint32_t entries) {
    for (uint32_t k = 0; k < entries; ++k)
      depths_.put(stream(number), [&](uint64_t* word, uint64_t value) {
        marks_.emplace_back(word, value);
        EXPECT_FALSE(DriverRule::forbids()) << "a mark is put in under no lock";
      });
  }
  // The stream comes to the next mark.
  void advance() {
    *marks_.front().first = marks_.front().second;
    marks_.pop_front();
  }

  std::vector<uint64_t> words_ = std::vector<uint64_t>(StreamDepths::kMostStreams, 7);
  StreamDepths depths_{words_.data()};
  std::deque<std::pair<uint64_t*, uint64_t>> marks_;
};

TEST_F(Depths, FallsWhereAMarkIsReached) {
  put(1, 200);
  EXPECT_EQ(depths_.queued(stream(1)), 200u);
  EXPECT_EQ(depths_.queued(stream(2)), 0u);
  ASSERT_EQ(marks_.size(), 3u);
  advance();
  EXPECT_EQ(depths_.queued(stream(1)), 200u - 64);
  advance();
  advance();
  EXPECT_EQ(depths_.queued(stream(1)), 200u - 192);
}

TEST_F(Depths, NeverRisesByALateMark) {
  put(1, 128);
  std::swap(marks_[0], marks_[1]);
  advance();
  EXPECT_EQ(depths_.queued(stream(1)), 0u);
  advance();
  EXPECT_EQ(depths_.queued(stream(1)), 0u);
}

TEST_F(Depths, AMarkOfAnEarlierStreamHidesNothingForEver) {
  put(1, 128);
  std::swap(marks_[0], marks_[1]);
  advance();  // it looks shallow now
  for (uintptr_t number = 2; number <= StreamDepths::kMostStreams + 1; ++number) put(number, 1);
  marks_.front().second = 1000;
  advance();  // into a word that is another one's
  for (uintptr_t number = 2; number <= StreamDepths::kMostStreams + 1; ++number)
    EXPECT_LE(depths_.queued(stream(number)), 1u);
}

TEST_F(Depths, StreamsThatAreGoneLeaveTheirPlaces) {
  for (uintptr_t number = 1; number <= 3 * StreamDepths::kMostStreams; ++number) {
    put(number, 1);
    EXPECT_EQ(depths_.queued(stream(number)), 1u) << number;
  }
}

TEST_F(Depths, DeepStreamsKeepTheirs) {
  for (uintptr_t number = 1; number <= StreamDepths::kMostStreams; ++number) put(number, 64);
  put(5000, 3);
  EXPECT_EQ(depths_.queued(stream(5000)), 0u) << "it is not known";
  EXPECT_EQ(depths_.queued(stream(1)), 64u);
  advance();
  put(5000, 3);
  EXPECT_EQ(depths_.queued(stream(5000)), 3u) << "in the first one's place, with a word of its own";
}

}  // namespace
}  // namespace starling::cuda
