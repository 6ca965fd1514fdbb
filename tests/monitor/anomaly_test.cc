// Goal: a path that was slower than usual is named, with how much time it cost, and told from one whose user
// had nothing to send; and what only looks different is not named. Method: records of made paths
// (made_path.h), with disturbances planted at known times, under many seeds.
// sanitize: address (one thread)
#include "monitor/anomaly.h"

#include <gtest/gtest.h>

#include "monitor/made_path.h"

namespace starling::monitor {
namespace {

constexpr uint64_t kSeeds = 50;

std::vector<Anomaly> anomalies_in(const std::vector<TransferRecord>& records, AnomalyOptions options = {}) {
  AnomalyDetector detector(options);
  std::vector<Anomaly> found;
  for (const TransferRecord& record : records)
    if (const auto ended = detector.push(record)) found.push_back(*ended);
  if (detector.current()) found.push_back(*detector.current());
  return found;
}

void expect_one(const std::vector<Anomaly>& found, Cause cause, const Period& planted, uint64_t seed) {
  ASSERT_EQ(found.size(), 1u) << "seed " << seed;
  EXPECT_EQ(found[0].cause, cause) << "seed " << seed;
  const uint64_t planted_ns = planted.end_ns - planted.begin_ns;
  EXPECT_LE(found[0].begin_ns, planted.end_ns) << "seed " << seed;
  EXPECT_GE(found[0].end_ns, planted.begin_ns) << "seed " << seed;
  EXPECT_GT(found[0].lost_ns, planted_ns * 6 / 10) << "seed " << seed;
  EXPECT_LT(found[0].lost_ns, planted_ns * 14 / 10) << "seed " << seed;
}

// ICCL's granularity in the simulated network: transfers of 10 us, and 100 us in which nothing passes.
TEST(Anomaly, ADisturbanceOf100MicrosecondsIsFoundAndMeasured) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    MadePath path;
    path.held = {5'000'000, 5'100'000};
    expect_one(anomalies_in(path.records(1000, seed)), Cause::kNetwork, path.held, seed);
  }
}

// On a wire: a millisecond, beside transfers of 100 us.
TEST(Anomaly, ADisturbanceOfAMillisecondIsFoundOnASlowerWire) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    MadePath path;
    path.bytes_per_ns = 0.65536;
    path.held = {30'000'000, 31'000'000};
    expect_one(anomalies_in(path.records(1000, seed)), Cause::kNetwork, path.held, seed);
  }
}

TEST(Anomaly, OneTransferAtATimeIsJudgedLikeMany) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    MadePath path;
    path.depth = 1;
    path.latency_ns = 20'000;
    path.think_ns = 5'000;
    path.held = {5'000'000, 5'400'000};
    expect_one(anomalies_in(path.records(500, seed)), Cause::kNetwork, path.held, seed);
  }
}

TEST(Anomaly, AUserThatPostsNothingIsNotTheNetwork) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    MadePath path;
    path.paused = {5'000'000, 6'000'000};
    const auto found = anomalies_in(path.records(1000, seed));
    expect_one(found, Cause::kStarved, path.paused, seed);
    EXPECT_EQ(found[0].left_bytes % 65536, 0u);
  }
}

TEST(Anomaly, NothingIsFoundWhereNothingIsWrong) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed)
    for (const uint32_t depth : {1u, 4u, 32u}) {
      MadePath path;
      path.depth = depth;
      path.jitter = 0.5;
      EXPECT_EQ(anomalies_in(path.records(2000, seed)).size(), 0u) << "seed " << seed << ", depth " << depth;
    }
}

// A transfer takes up to sixty times as long as others, and the raw throughput is another; the path is as
// fast as ever.
TEST(Anomaly, TransfersOfOtherSizesAreNoAnomaly) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    MadePath path;
    path.latency_ns = 30'000;
    path.bytes = [](uint64_t k) { return uint64_t(k / 100 % 5 == 0 ? 262144 : 4096); };
    EXPECT_EQ(anomalies_in(path.records(4000, seed)).size(), 0u) << "seed " << seed;
  }
}

TEST(Anomaly, ALastingSlowdownStaysOneAnomalyForLong) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    MadePath path;
    path.slowed = {3'000'000, ~uint64_t(0)};
    path.factor = 5;
    const auto found = anomalies_in(path.records(1000, seed));
    ASSERT_EQ(found.size(), 1u) << "seed " << seed;
    EXPECT_EQ(found[0].cause, Cause::kNetwork);
    EXPECT_GT(found[0].end_ns - found[0].begin_ns, 20'000'000u) << "seed " << seed;
    EXPECT_LT(found[0].bytes_per_second, found[0].usual_bytes_per_second / 3) << "seed " << seed;
  }
}

// Two striped paths share the transfers that may be under way: while one stands still, the other is given
// nothing.
TEST(Anomaly, OfTwoStripedPathsTheOneThatStandsStillIsNamed) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    MadePath held, other;
    held.held = {5'000'000, 6'000'000};
    other.paused = {5'080'000, 6'000'000};
    const auto first = anomalies_in(held.records(1000, seed));
    const auto second = anomalies_in(other.records(1000, seed + 1000));
    ASSERT_EQ(first.size(), 1u);
    ASSERT_EQ(second.size(), 1u);
    EXPECT_EQ(first[0].cause, Cause::kNetwork) << "seed " << seed;
    EXPECT_EQ(second[0].cause, Cause::kStarved) << "seed " << seed;
  }
}

TEST(Anomaly, AStandstillIsSeenBeforeItEnds) {
  MadePath path;
  AnomalyDetector detector;
  uint64_t now = 0;
  for (const TransferRecord& record : path.records(500, 1)) {
    detector.push(record);
    now = record.completed_ns;
  }
  ASSERT_FALSE(detector.look(now + 20'000, now - 5'000, 65536));
  const auto stuck = detector.look(now + 1'000'000, now - 5'000, 3 * 65536);
  ASSERT_TRUE(stuck);
  EXPECT_EQ(stuck->cause, Cause::kNetwork);
  EXPECT_EQ(stuck->left_bytes, 3u * 65536);
  EXPECT_NEAR(double(stuck->lost_ns), 1e6, 1e4);
  const auto idle = detector.look(now + 1'000'000, 0, 0);
  ASSERT_TRUE(idle);
  EXPECT_EQ(idle->cause, Cause::kStarved);
}

TEST(Anomaly, WhatIsMissingIsNotTakenForAStandstill) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    MadePath path;
    const auto records = path.records(3000, seed);
    AnomalyDetector detector;
    uint64_t found = 0;
    for (size_t k = 0; k < records.size(); ++k) {
      if (k >= 1000 && k < 2000) continue;  // overwritten before they were read
      if (k == 2000) detector.restart();
      found += detector.push(records[k]).has_value();
    }
    EXPECT_EQ(found, 0u) << "seed " << seed;
    EXPECT_FALSE(detector.current()) << "seed " << seed;
  }
}

TEST(Anomaly, SmallWindowsSeeShortDisturbancesAndLargeOnesSmoothThem) {
  MadePath path;
  path.held = {5'000'000, 5'100'000};
  const auto records = path.records(1000, 7);
  EXPECT_EQ(anomalies_in(records, {.window = 1}).size(), 1u);
  EXPECT_EQ(anomalies_in(records, {.window = 8}).size(), 1u);
  EXPECT_EQ(anomalies_in(records, {.window = 128}).size(), 0u);  // 100 us of 1280
}

}  // namespace
}  // namespace starling::monitor
