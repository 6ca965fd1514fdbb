// Goal: a window says bytes by time as ICCL §3.4 defines them, tells a slow path from a starved one, and
// larger windows smooth more. Method: records of a path whose rate is known, by hand, and with a disturbance
// in the middle.
// sanitize: address (one thread)
#include "monitor/window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace starling::monitor {
namespace {

TEST(Window, IsBytesByFirstPostToLastCompletion) {
  Window window(3);
  window.push({0, 100, 1000, 0});
  window.push({10, 200, 2000, 0});
  WindowSample sample = window.push({20, 320, 3000, 500});
  EXPECT_EQ(sample.transfers, 3u);
  EXPECT_EQ(sample.bytes, 6000u);
  EXPECT_EQ(sample.span_ns(), 320u);
  EXPECT_DOUBLE_EQ(sample.bytes_per_second(), 6000e9 / 320);
  EXPECT_EQ(sample.left_bytes, 500u);
  sample = window.push({30, 430, 500, 0});  // the first one leaves
  EXPECT_EQ(sample.bytes, 5500u);
  EXPECT_EQ(sample.span_ns(), 420u);
}

TEST(Window, BeforeItIsFullItSaysWhatItHas) {
  Window window;
  const WindowSample sample = window.push({5, 15, 100, 0});
  EXPECT_EQ(sample.transfers, 1u);
  EXPECT_DOUBLE_EQ(sample.bytes_per_second(), 1e10);
}

TEST(Window, TimeWithNothingUnderWayIsTheUsersNotThePaths) {
  Window window(4);
  window.push({0, 100, 1000, 0});
  const WindowSample starved = window.push({900, 1000, 1000, 0});
  EXPECT_EQ(starved.starved_ns, 800u);
  EXPECT_DOUBLE_EQ(starved.bytes_per_second(), 2000e9 / 1000);
  EXPECT_DOUBLE_EQ(starved.busy_bytes_per_second(), 2000e9 / 200);
  Window other(4);
  other.push({0, 100, 1000, 0});
  const WindowSample slow = other.push({50, 1000, 1000, 0});
  EXPECT_EQ(slow.starved_ns, 0u);
  EXPECT_DOUBLE_EQ(slow.busy_bytes_per_second(), slow.bytes_per_second());
}

TEST(Window, TheGapBeforeItsFirstTransferIsOutside) {
  Window window(2);
  window.push({0, 100, 1, 0});
  window.push({500, 600, 1, 0});
  const WindowSample sample = window.push({600, 700, 1, 0});
  EXPECT_EQ(sample.starved_ns, 0u);
  EXPECT_EQ(sample.span_ns(), 200u);
}

TEST(Window, RefusesSizesThatMeanNothing) {
  EXPECT_THROW(Window(0), Error);
  EXPECT_THROW(Window(kLargestWindow + 1), Error);
}

// 400 transfers of 100 us each, four under way, and in the middle a standstill of the wire of 1 ms.
std::vector<TransferRecord> disturbed() {
  std::vector<TransferRecord> records;
  for (uint64_t k = 0; k < 400; ++k) {
    const uint64_t late = k >= 200 ? 1'000'000 : 0;
    const uint64_t completed = (k + 1) * 100'000 + late;
    const uint64_t posted = k < 4 ? 0 : records[k - 4].completed_ns;
    records.push_back({posted, completed, 100'000, 300'000});
  }
  return records;
}

struct Course {
  double usual, lowest;
};
Course course(uint32_t size) {
  Window window(size);
  Course course{0, 1e18};
  for (const TransferRecord& record : disturbed()) {
    const WindowSample sample = window.push(record);
    if (sample.transfers < size) continue;
    EXPECT_EQ(sample.starved_ns, 0u);
    course.usual = std::max(course.usual, sample.bytes_per_second());
    course.lowest = std::min(course.lowest, sample.bytes_per_second());
  }
  return course;
}

TEST(Window, ADisturbanceShowsLessTheLargerItIs) {
  double before = 0;
  for (const uint32_t size : {1u, 8u, 32u}) {
    const Course seen = course(size);
    const double drop = seen.lowest / seen.usual;
    EXPECT_LT(drop, 0.8) << size;  // all of them see 1 ms
    EXPECT_GT(drop, before) << size;
    before = drop;
  }
}

}  // namespace
}  // namespace starling::monitor
