// Goal: a flight record holds what was told, in the bytes that other programs read, whole or not at all; it
// stays after a fault and goes without one; old ones are removed. Method: records of this process read back
// from /dev/shm, fields by their offsets; a reader that looks while a writer overwrites the ring; files of
// invented ranks.
#include "monitor/flight_recorder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utime.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <thread>

namespace starling::monitor {
namespace {

std::string unique_arena(const char* what) {
  return "starling.test" + std::to_string(getpid()) + what + ".0";
}

std::filesystem::path file_of(const std::string& arena) { return "/dev/shm/" + flight_name(arena); }

Signature signature() {
  Signature signature{};
  signature.collective = Collective::kBroadcast;
  signature.data_type = DataType::kFloat64;
  signature.reduce_op = ReduceOp::kMax;
  signature.root = 3;
  signature.count = 5;
  signature.plan_hash = 6;
  signature.counts_hash = 7;
  signature.in_place = 1;
  return signature;
}

template <class T>
T at(const FlightRecord& record, size_t offset) {
  T value;
  std::memcpy(&value, reinterpret_cast<const std::byte*>(&record) + offset, sizeof value);
  return value;
}

TEST(FlightRecord, LiesWhereOtherProgramsReadIt) {
  FlightRecorder recorder({unique_arena("layout"), "cpu", 2});
  const uint64_t members[] = {11, 12, 13};
  const uint32_t group = recorder.add_group({21, 22, "world", 1, true, members});
  recorder.open_lane(4, {31, 32, "x", 3, 1, {group, -1, -1}});
  const uint64_t number = recorder.submitted({4, 0, 40, 1000}, signature());
  recorder.started(number, 2000);
  recorder.completed(number, 4, 9, 3000);
  const FlightRecord& r = recorder.record();
  EXPECT_EQ(std::memcmp(&r, "SLFIGHT2", 8), 0);
  EXPECT_EQ(at<uint32_t>(r, 9 * 8), uint32_t(getpid()));
  EXPECT_EQ(at<uint32_t>(r, 9 * 8 + 8), 2u) << "blocks";
  const size_t first_group = 2560, first_member = first_group + 64 * 128;
  EXPECT_EQ(at<uint64_t>(r, first_group), 21u);
  EXPECT_EQ(at<uint32_t>(r, first_group + 40), 3u) << "size";
  EXPECT_EQ(at<char>(r, first_group + 56), 'w');
  EXPECT_EQ(at<uint64_t>(r, first_member + 8), 12u);
  const size_t operation = first_member + 4096 * 8;
  const uint64_t words[] = {1, 0, 5, 40, 6, 7, 1000, 2000, 3000};
  for (size_t word = 0; word < 9; ++word) EXPECT_EQ(at<uint64_t>(r, operation + 8 * word), words[word]);
  EXPECT_EQ(at<int32_t>(r, operation + 72), 3);
  EXPECT_EQ(at<uint32_t>(r, operation + 76), 4u) << "lane";
  EXPECT_EQ(at<uint32_t>(r, operation + 80), 0x02030b03u) << "flags, reduction, type, kind";
  EXPECT_EQ(at<uint32_t>(r, operation + 84), 9u) << "status";
  EXPECT_EQ(at<uint64_t>(r, operation + 88), 1u) << "number again";
  const size_t lane = operation + 256 * 96 + 4 * 192;
  EXPECT_EQ(at<uint64_t>(r, lane + 24), 1u) << "submitted";
  EXPECT_EQ(at<uint64_t>(r, lane + 32), 1u) << "completed";
  EXPECT_EQ(at<char>(r, lane + 80), 'x');
}

#ifdef STARLING_SANITIZED
constexpr uint64_t kRounds = 200'000;
#else
constexpr uint64_t kRounds = 3'000'000;
#endif

TEST(FlightRecord, AReaderSeesWholeOperationsAlone) {
  FlightRecorder recorder({unique_arena("whole"), "cpu", 1});
  recorder.open_lane(0, {1, 1, "x", 1, 0, {}});
  std::atomic<bool> done{false};
  std::atomic<uint64_t> seen{0};
  std::thread reader([&] {
    auto& record = const_cast<FlightRecord&>(recorder.record());
    while (!done) {
      // The one that is written next, or now.
      const uint64_t next = std::atomic_ref<uint64_t>(record.header.submissions).load() % kFlightOperations;
      FlightOperation& op = record.operations[next];
      const uint64_t number = std::atomic_ref<uint64_t>(op.number).load(std::memory_order_acquire);
      const uint64_t sequence = std::atomic_ref<uint64_t>(op.sequence).load(std::memory_order_relaxed);
      const uint64_t bytes = std::atomic_ref<uint64_t>(op.bytes).load(std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_acquire);
      if (number == 0 || std::atomic_ref<uint64_t>(op.number).load(std::memory_order_relaxed) != number)
        continue;
      ++seen;
      EXPECT_EQ(sequence, number * 3);
      EXPECT_EQ(bytes, number * 5);
    }
  });
  for (uint64_t k = 1; k <= kRounds || seen == 0; ++k) recorder.submitted({0, k * 3, k * 5, k}, signature());
  done = true;
  reader.join();
}

TEST(FlightRecord, AnOperationThatWasOverwrittenIsNotTouched) {
  FlightRecorder recorder({unique_arena("over"), "cpu", 1});
  recorder.open_lane(0, {1, 1, "x", 1, 0, {}});
  const uint64_t first = recorder.submitted({0, 0, 1, 1}, signature());
  for (uint64_t k = 1; k <= kFlightOperations; ++k) recorder.submitted({0, k, 1, 1}, signature());
  recorder.started(first, 7);
  recorder.completed(first, 0, 0, 8);
  for (const FlightOperation& op : recorder.record().operations) {
    EXPECT_EQ(op.started_ns, 0u);
    EXPECT_EQ(op.completed_ns, 0u);
  }
  EXPECT_EQ(recorder.record().lanes[0].completed, 1u) << "the lane counts it all the same";
}

TEST(FlightRecord, StaysAfterAFaultOnly) {
  const std::string quiet = unique_arena("quiet"), faulty = unique_arena("faulty");
  {
    FlightRecorder one({quiet, "cpu", 1}), other({faulty, "cpu", 1});
    EXPECT_TRUE(std::filesystem::exists(file_of(quiet)));
    EXPECT_TRUE(other.fault(0, uint64_t(FaultKind::kTimeout), 5, "late"));
    EXPECT_FALSE(other.fault(0, uint64_t(FaultKind::kTimeout), 5, "late")) << "the lane's second";
  }
  EXPECT_FALSE(std::filesystem::exists(file_of(quiet)));
  FlightRecord kept;
  std::ifstream(file_of(faulty), std::ios::binary).read(reinterpret_cast<char*>(&kept), sizeof kept);
  EXPECT_EQ(kept.header.state, uint32_t(FlightState::kEnded));
  EXPECT_EQ(kept.header.fault_count, 1u);
  EXPECT_STREQ(kept.header.faults[0].text, "late");
  std::filesystem::remove(file_of(faulty));
}

TEST(FlightRecord, TablesThatAreFullTakeNoMore) {
  const struct Removed {
    std::filesystem::path path = file_of(unique_arena("full"));
    ~Removed() { std::filesystem::remove(path); }
  } removed;  // after the recorder, which leaves it for its faults
  FlightRecorder recorder({unique_arena("full"), "cpu", 1});
  const uint64_t members[] = {1, 2};
  for (uint32_t g = 0; g < kFlightGroups; ++g)
    EXPECT_EQ(recorder.add_group({g, g, "g", 0, false, members}), g);
  EXPECT_EQ(recorder.add_group({1, 1, "late", 0, false, members}), kNoFlightGroup);
  recorder.leave_group(7);
  EXPECT_EQ(recorder.add_group({1, 1, "late", 0, false, members}), 7u);
  recorder.open_lane(kFlightLanes, {1, 1, "beyond", 2, 0, {}});
  const uint64_t number = recorder.submitted({kFlightLanes, 0, 1, 1}, signature());
  recorder.completed(number, kFlightLanes, 0, 1);
  for (uint32_t lane = 0; lane < kFlightFaults; ++lane) EXPECT_TRUE(recorder.fault(lane, 2, 0, "f"));
  EXPECT_FALSE(recorder.fault(kFlightFaults, 2, 0, "one more"));
  EXPECT_EQ(recorder.record().header.fault_count, kFlightFaults);
  recorder.leave_group(kNoFlightGroup);
}

TEST(FlightFiles, OldOnesOfDeadRanksGo) {
  const auto fresh = file_of(unique_arena("fresh")), old = file_of(unique_arena("old"));
  for (const auto& path : {fresh, old}) std::ofstream(path) << "a record";
  const std::time_t yesterday = std::time(nullptr) - 25 * 3600;
  const utimbuf times{yesterday, yesterday};
  ASSERT_EQ(utime(old.c_str(), &times), 0);
  remove_old_flights();
  EXPECT_TRUE(std::filesystem::exists(fresh));
  EXPECT_FALSE(std::filesystem::exists(old));
  std::filesystem::remove(fresh);
}

TEST(FlightFiles, ANeighboursCopyDoesNotReplaceItsOwn) {
  const std::string folder = std::filesystem::temp_directory_path() / ("flight" + std::to_string(getpid()));
  const std::string arena = unique_arena("copy");
  FlightRecorder recorder({arena, "cpu", 1});
  EXPECT_FALSE(copy_neighbours_flight(unique_arena("nobody"), folder));
  copy_flight(recorder.record(), folder);
  const auto copy = *std::filesystem::directory_iterator(folder);
  const auto written = std::filesystem::last_write_time(copy);
  const auto before = std::filesystem::file_size(copy);
  EXPECT_TRUE(copy_neighbours_flight(arena, folder));
  EXPECT_EQ(std::filesystem::last_write_time(copy), written);
  EXPECT_EQ(before, sizeof(FlightRecord));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1) << "drafts are gone";
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace starling::monitor
