// Goal: operations that do not match are errors on every rank, also when one rank has submitted far ahead.
// Method: rank 0 submits many operations of one lane before rank 1 submits its first, which has another
// count; and a rank has begun to say that a lane is broken, and does not go on.
#include <atomic>
#include <barrier>
#include <chrono>

#include "comm/lane_regions.h"
#include "comm/threads.h"

namespace starling::testing {
namespace {

TEST(Matching, ARankFarAheadIsStillCompared) {
  RankOptions options;
  options.size = 2;
  run_ranks(options, [](Rank& rank) {
    constexpr int kAhead = 40;
    std::vector<std::vector<float>> buffers(kAhead, std::vector<float>(4, 1.0f));
    std::vector<starling_request*> requests;
    if (rank.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    for (int k = 0; k < kAhead; ++k) {
      starling_operation op = operation(STARLING_ALL_REDUCE);
      op.lane = "ahead";
      op.input = op.output = buffers[k].data();
      op.count = rank.rank == 1 && k == 0 ? 3 : 4;
      starling_request* request = nullptr;
      ASSERT_EQ(starling_submit(rank.comm, &op, &request), STARLING_SUCCESS) << starling_last_error();
      requests.push_back(request);
    }
    for (starling_request* request : requests) {
      EXPECT_EQ(starling_wait(request, 200'000'000'000), STARLING_MISMATCH);
      EXPECT_NE(std::string(starling_last_error()).find("do not match in lane 'ahead' at position 0"),
                std::string::npos)
          << starling_last_error();
      starling_request_free(request);
    }
  });
}

// Operations of no elements wait for nobody, so a rank can be further ahead than boards remember.
TEST(Matching, ARankThatWentOnWithoutElementsIsCompared) {
  RankOptions options;
  options.size = 2;
  run_ranks(options, [](Rank& rank) {
    constexpr int kEmpty = 40;
    std::vector<float> buffer(4, 1.0f);
    const auto submit = [&](uint64_t count) {
      starling_operation op = operation(STARLING_ALL_REDUCE);
      op.lane = "empty";
      op.input = op.output = buffer.data();
      op.count = count;
      starling_request* request = nullptr;
      EXPECT_EQ(starling_submit(rank.comm, &op, &request), STARLING_SUCCESS) << starling_last_error();
      return request;
    };
    if (rank.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    for (int k = 0; rank.rank == 0 && k < kEmpty; ++k) expect_done(submit(0));
    starling_request* request = submit(4);
    EXPECT_EQ(starling_wait(request, 200'000'000'000), STARLING_MISMATCH) << "rank " << rank.rank;
    EXPECT_NE(std::string(starling_last_error()).find("do not match in lane 'empty' at position 0"),
              std::string::npos)
        << starling_last_error();
    starling_request_free(request);
  });
}

// A rank that comes late to broadcasts by copies, which are sent by other ranks than the plan of the name
// says: others are further on than boards remember, and all is right.
TEST(Matching, BroadcastsOfTwoRootsByCopiesMatch) {
  constexpr uint32_t kOfEach = 80;
  RankOptions options;
  options.sm_free = STARLING_SM_FREE_ALWAYS;
  run_ranks(options, [](Rank& rank) {
    std::vector<std::vector<float>> buffers(1 + 2 * kOfEach, std::vector<float>(3000, float(rank.rank)));
    const auto submit = [&](uint32_t number, int32_t root) {
      starling_operation op = operation(STARLING_BROADCAST);
      op.lane = "two roots";
      op.root = root;
      op.input = op.output = buffers[number].data();
      op.count = buffers[number].size();
      starling_request* request = nullptr;
      EXPECT_EQ(starling_submit(rank.comm, &op, &request), STARLING_SUCCESS) << starling_last_error();
      return request;
    };
    expect_done(submit(0, 0));  // all have met
    if (rank.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    std::vector<starling_request*> requests;
    for (uint32_t k = 0; k < 2 * kOfEach; ++k) requests.push_back(submit(1 + k, k < kOfEach ? 0 : 3));
    for (starling_request* request : requests) expect_done(request);
    for (uint32_t k = 0; k < 2 * kOfEach; ++k) EXPECT_EQ(buffers[1 + k][7], k < kOfEach ? 0 : 3) << k;
  });
}

// Rank 1 has its message of the first all-to-all, and goes on without elements, when rank 2 comes: what rank
// 0 has under way is compared anew then, and matches.
TEST(Matching, WhatIsUnderWayIsNoMismatchWhenARankComes) {
  constexpr int kMore = 40;
  RankOptions options;
  options.size = 3;
  run_ranks(options, [](Rank& rank) {
    using Table = size_t[3][3];  // elements, from and to
    constexpr Table kFirst = {{0, 4, 4}, {0, 0, 0}, {0, 0, 0}}, kMoreOf = {{0, 0, 4}, {0, 0, 0}, {4, 0, 0}};
    std::vector<float> input(12, float(rank.rank)), output(12);
    const auto submit = [&](const Table& table) {
      size_t sent[3], received[3];
      for (uint32_t k = 0; k < 3; ++k) {
        sent[k] = table[rank.rank][k];
        received[k] = table[k][rank.rank];
      }
      starling_operation op = operation(STARLING_ALL_TO_ALL);
      op.lane = "late";
      op.input = input.data();
      op.output = output.data();
      op.input_counts = sent;
      op.output_counts = received;
      starling_request* request = nullptr;
      EXPECT_EQ(starling_submit(rank.comm, &op, &request), STARLING_SUCCESS) << starling_last_error();
      return request;
    };
    if (rank.rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    std::vector<starling_request*> requests{submit(kFirst)};
    for (int k = 0; k < kMore; ++k) requests.push_back(submit(kMoreOf));
    for (starling_request* request : requests) expect_done(request);
    if (rank.rank == 1)
      std::this_thread::sleep_for(std::chrono::milliseconds(600));  // it does not leave before
  });
}

// Who writes a fault into a peer's region may be stopped, or die, amid it. Neither the owner nor anybody else
// may take the lane for whole because of that, least of all the rank that finds the mismatch.
class HalfWrittenFault : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Matching, HalfWrittenFault, ::testing::Values(0u, 1u));

TEST_P(HalfWrittenFault, HidesNoMismatch) {
  const uint32_t later = GetParam();
  RankOptions options;
  options.size = 2;
  std::barrier both(2);
  run_ranks(options, [&](Rank& rank) {
    std::vector<float> buffer(4, 1.0f);
    const auto submit = [&](uint64_t count) {
      starling_operation op = operation(STARLING_ALL_REDUCE);
      op.lane = "half";
      op.input = op.output = buffer.data();
      op.count = count;
      starling_request* request = nullptr;
      EXPECT_EQ(starling_submit(rank.comm, &op, &request), STARLING_SUCCESS) << starling_last_error();
      return request;
    };
    expect_done(submit(4));
    if (rank.rank == 0) {
      uint32_t regions = 0;
      for_each_lane_region([&](ArenaHeader*, LaneShared* lane) {
        std::atomic_ref<uint64_t>(lane->claim).store(1 + (1 - lane->rank));
        ++regions;
      });
      EXPECT_EQ(regions, 2u);
    }
    both.arrive_and_wait();
    if (rank.rank == later) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    for (const uint64_t count : {rank.rank == 0 ? 4 : 3, 4}) {
      starling_request* request = submit(count);
      EXPECT_EQ(starling_wait(request, 200'000'000'000), STARLING_MISMATCH) << "rank " << rank.rank;
      EXPECT_NE(std::string(starling_last_error()).find("do not match in lane 'half' at position 1"),
                std::string::npos)
          << starling_last_error();
      starling_request_free(request);
    }
    both.arrive_and_wait();
  });
}

}  // namespace
}  // namespace starling::testing
