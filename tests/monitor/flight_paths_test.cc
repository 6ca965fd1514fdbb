// Goal: a flight record tells of each path what it carried lately, how fast and how long it stood, in a
// bounded place that other programs read. Method: paths in a segment made by hand, on made-up time.
// sanitize: address (one thread)
#include "monitor/flight_paths.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "monitor/flow_recorder.h"
#include "monitor/publish.h"

namespace starling::monitor {
namespace {

constexpr uint64_t kArenaBytes = 64 << 20;
constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kLookNs = FlightPaths::kBetweenLooksNs;

struct Made {
  cpu::Arena arena{{kArenaBytes}};
  std::unique_ptr<FlightRecord> record{new FlightRecord()};
  FlightPaths paths{arena, *record};
  std::vector<PathRing*> rings;
  std::unique_ptr<FlowRecorder> recorder;
  uint64_t now = 1000 * kMs;
  uint64_t sequence = 0;

  explicit Made(uint32_t count = 2) {
    publish_rank(arena, {"cpu", 4});
    for (uint32_t p = 0; p < count; ++p)
      rings.push_back(add_path(arena, {7, p, LinkKind::kTcp, "rail" + std::to_string(p)}));
    recorder = std::make_unique<FlowRecorder>(rings);
  }

  // One after the other on path 0, looked at all the while.
  void carry(uint64_t transfers, uint64_t each_ns) {
    for (uint64_t k = 0; k < transfers; ++k) {
      recorder->posted(0, sequence, 100'000, now);
      now += each_ns;
      recorder->landed(++sequence, 0, now);
      paths.follow(now);
    }
  }
  const FlightSample& newest(uint32_t path = 0) const {
    const FlightPath& entry = record->paths[path];
    return entry.samples[(entry.written - 1) % kFlightSamples];
  }
};

template <class T>
T at(const FlightRecord& record, size_t offset) {
  T value;
  std::memcpy(&value, reinterpret_cast<const std::byte*>(&record) + offset, sizeof value);
  return value;
}

TEST(FlightPaths, LieWhereOtherProgramsReadThem) {
  Made made;
  made.paths.follow(made.now);
  made.recorder->posted(1, 0, 5, made.now);
  made.recorder->landed(1, 0, made.now + 3);
  made.recorder->posted(1, 1, 6, made.now + 4);
  made.now += kLookNs;
  made.paths.follow(made.now);
  const FlightRecord& r = *made.record;
  EXPECT_EQ(at<uint32_t>(r, 124), 2u) << "paths";
  const size_t first = 2560 + 64 * 128 + 4096 * 8 + 256 * 96 + 512 * 192, path = first + 2240;
  const uint64_t words[] = {1, made.now, 6, 1000 * kMs + 4, 1, 5, 0};
  for (size_t word = 0; word < 7; ++word) EXPECT_EQ(at<uint64_t>(r, path + 8 * word), words[word]) << word;
  EXPECT_EQ(at<uint32_t>(r, path + 56), 7u) << "peer";
  EXPECT_EQ(at<uint32_t>(r, path + 60), 1u) << "path";
  EXPECT_EQ(at<uint32_t>(r, path + 64), 1u) << "link";
  EXPECT_STREQ(reinterpret_cast<const char*>(&r) + path + 68, "rail1");
  const uint64_t sample[] = {1000 * kMs, 1000 * kMs + 3, 5, 3, 0, 0, 5'000'000'000 / 3};
  for (size_t word = 0; word < 7; ++word)
    EXPECT_EQ(at<uint64_t>(r, path + 192 + 8 * word), sample[word]) << word;
  EXPECT_EQ(at<uint32_t>(r, path + 192 + 56), 1u) << "transfers";
  EXPECT_EQ(r.paths[0].written, 0u) << "it has carried nothing";
}

TEST(FlightPaths, SayWhatIsUsualAndWhatWasLost) {
  Made made;
  made.carry(5000, kMs);
  EXPECT_EQ(made.newest().lost_ns, 0u);
  EXPECT_NEAR(double(made.newest().usual_bytes_per_second), 1e8, 1e7);
  EXPECT_NEAR(double(made.newest().busy_ns), double(kLookNs), 2e6);
  EXPECT_EQ(made.newest().bytes, made.newest().transfers * 100'000u);
  made.carry(100, 20 * kMs);
  EXPECT_NEAR(double(made.newest().lost_ns), double(kLookNs) * 0.95, 20e6);
  EXPECT_NEAR(double(made.newest().usual_bytes_per_second), 1e8, 2e7) << "what is slow teaches little";
  EXPECT_NEAR(double(made.newest().window_bytes_per_second), 5e6, 5e5);
}

TEST(FlightPaths, KeepWhatWasBeforeAStandstill) {
  Made made;
  made.carry(1000, kMs);
  made.paths.follow(made.now += kLookNs);
  const uint64_t written = made.record->paths[0].written, end = made.newest().end_ns;
  made.recorder->posted(0, made.sequence, 77, made.now);
  for (int look = 0; look < 1000; ++look) made.paths.follow(made.now += kLookNs);
  const FlightPath& path = made.record->paths[0];
  EXPECT_EQ(path.written, written) << "nothing has completed";
  EXPECT_EQ(made.newest().end_ns, end);
  EXPECT_EQ(path.left_bytes, 77u);
  EXPECT_EQ(path.seen_ns - path.waiting_since_ns, 1000 * kLookNs);
  made.recorder->closed(0);
  made.paths.follow(made.now += kLookNs);
  EXPECT_EQ(path.left_bytes, 0u);
  EXPECT_EQ(path.waiting_since_ns, 0u);
  EXPECT_EQ(path.closed, 1u);
}

TEST(FlightPaths, OfManyTransfersTheNewestAreRead) {
  Made made;
  made.carry(20'000, 10'000);  // some 25,000 between two looks
  made.now += kLookNs;
  made.carry(1, 10'000);
  const FlightSample& sample = made.newest();
  EXPECT_EQ(sample.transfers, FlightPaths::kMostRecords);
  EXPECT_NEAR(double(sample.end_ns - sample.begin_ns), 256 * 10e3 + double(kLookNs), 1e6)
      << "of them alone: with the pause before the last one";
  EXPECT_NEAR(double(sample.busy_ns), 256 * 10e3, 1e5);
  EXPECT_EQ(made.record->paths[0].transfers, 20'001u);
}

TEST(FlightPaths, BeyondTheTableHaveNoEntry) {
  Made made(kFlightPaths + 3);
  made.carry(10, kMs);
  made.now += kLookNs;
  made.carry(1, kMs);
  EXPECT_EQ(made.record->header.path_count, kFlightPaths);
  EXPECT_EQ(made.record->paths[0].transfers, 11u);
  EXPECT_STREQ(made.record->paths[kFlightPaths - 1].name, "rail127");
}

TEST(FlightPaths, ThatComeLaterAreFound) {
  Made made;
  made.carry(1, kMs);
  PathRing* late = add_path(made.arena, {8, 0, LinkKind::kVerbs, "mlx0"});
  made.paths.follow(made.now += kLookNs);
  EXPECT_EQ(made.record->header.path_count, 3u);
  EXPECT_STREQ(made.record->paths[2].name, "mlx0");
  EXPECT_EQ(made.record->paths[2].link, LinkKind::kVerbs);
  FlowRecorder recorder({late});
  recorder.opened(0, LinkKind::kTcp);
  made.paths.follow(made.now += kLookNs);
  EXPECT_EQ(made.record->paths[2].link, LinkKind::kTcp);
}

}  // namespace
}  // namespace starling::monitor
