// Goal: what a broken lane had lent from the slot pool comes back while the context lives, and not before the
// peers' blocks are through with it; and buffers that peers read directly are free when the request has
// ended. Method: two ranks break many lanes, by timeouts of a rank that has not called and by aborts amid
// transfers, while checked all-reduces of another lane use the same slots; at the end no slot is missing.
// What was given back is overwritten at once, which ThreadSanitizer sees, and no sum that passes for right
// has any of it.
#include <algorithm>
#include <atomic>
#include <chrono>

#include "comm/threads.h"

namespace starling::testing {
namespace {

#ifdef STARLING_SANITIZED
constexpr uint32_t kLanes = 5;
#else
constexpr uint32_t kLanes = 30;
#endif
constexpr size_t kLarge = size_t(1) << 19;  // elements: more messages than private slots

starling_request* submit_sum(starling_comm* comm, const char* lane, std::vector<float>& buffer,
                             std::vector<float>* output = nullptr) {
  starling_operation op = operation(STARLING_ALL_REDUCE);
  op.lane = lane;
  op.algorithm = output == nullptr ? "ring" : "two_shot_pull";
  op.input = buffer.data();
  op.output = (output == nullptr ? buffer : *output).data();
  op.count = buffer.size();
  starling_request* request = nullptr;
  EXPECT_EQ(starling_submit(comm, &op, &request), STARLING_SUCCESS) << starling_last_error();
  return request;
}

uint64_t slots_lent(starling_context* context) {
  starling_statistics statistics{};
  statistics.struct_bytes = sizeof statistics;
  EXPECT_EQ(starling_context_statistics(context, &statistics), STARLING_SUCCESS);
  return statistics.pool_slots_used;
}

// The most and the last number of lent slots, until there are none or the time is up.
void expect_all_back(starling_context* context) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(100);
  while (slots_lent(context) != 0 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(slots_lent(context), 0u);
}

void expect_sum(Rank& rank, const char* lane) {
  std::vector<float> buffer(kLarge, float(rank.rank + 1));
  expect_done(submit_sum(rank.comm, lane, buffer));
  const float sum = float(rank.size * (rank.size + 1)) / 2;
  EXPECT_EQ(std::count(buffer.begin(), buffer.end(), sum), ptrdiff_t(kLarge));
}

TEST(BrokenLane, GivesItsSlotsBackAfterATimeout) {
  for (const uint32_t blocks : {1u, 3u}) {
    RankOptions options;
    options.size = 2;
    options.blocks = blocks;
    std::atomic<uint64_t> most{0};
    run_ranks(options, [&](Rank& rank) {
      // Again if the time was up before anything was lent.
      for (int64_t timeout_ms = 300; most == 0 && timeout_ms < 30'000; timeout_ms *= 2) {
        const std::string lane = "of " + std::to_string(timeout_ms) + " ms";
        expect_sum(rank, lane.c_str());  // both have it open: the next operation lends at its start
        if (rank.rank == 0) {
          EXPECT_EQ(starling_comm_set_timeout(rank.comm, timeout_ms * 1'000'000), STARLING_SUCCESS);
          std::vector<float> buffer(kLarge, 1);
          starling_request* request = submit_sum(rank.comm, lane.c_str(), buffer);
          while (starling_test(request) == STARLING_IN_PROGRESS)
            most = std::max(most.load(), slots_lent(rank.context));
          EXPECT_EQ(starling_wait(request, -1), STARLING_TIMEOUT);
          starling_request_free(request);
          EXPECT_EQ(starling_comm_set_timeout(rank.comm, 200'000'000'000), STARLING_SUCCESS);
        }
        expect_all_back(rank.context);  // of rank 0, though rank 1 never called
        expect_sum(rank, "other");  // after it both know whether there were any
      }
    });
    EXPECT_GT(most, 0u);
  }
}

TEST(BrokenLane, LendsNoSlotThatIsStillWrittenTo) {
  RankOptions options;
  options.size = 2;
  run_ranks(options, [](Rank& rank) {
    const uint32_t both[] = {0, 1};
    for (uint32_t k = 0; k < kLanes; ++k) {
      starling_comm* group = nullptr;
      ASSERT_EQ(starling_comm_subgroup(rank.comm, both, 2, std::to_string(k).c_str(), &group),
                STARLING_SUCCESS);
      std::vector<float> buffer(kLarge, 1);
      starling_request* request = submit_sum(group, "broken", buffer);
      if (k % 2 == rank.rank) {
        std::this_thread::sleep_for(std::chrono::microseconds(50 * k));
        EXPECT_EQ(starling_comm_abort(group, "the test says so"), STARLING_SUCCESS);
      }
      expect_sum(rank, "lane");
      const starling_status status = starling_wait(request, 200'000'000'000);
      EXPECT_TRUE(status == STARLING_ABORTED || status == STARLING_SUCCESS) << starling_last_error();
      starling_request_free(request);
      EXPECT_EQ(starling_comm_destroy(group), STARLING_SUCCESS);
    }
    expect_all_back(rank.context);
  });
}

TEST(BrokenLane, GivesBuffersBackThatNobodyReads) {
  RankOptions options;
  options.size = 3;
  run_ranks(options, [](Rank& rank) {
    const uint32_t all[] = {0, 1, 2};
    for (uint32_t k = 0; k < kLanes; ++k) {
      starling_comm* group = nullptr;
      ASSERT_EQ(starling_comm_subgroup(rank.comm, all, 3, std::to_string(k).c_str(), &group),
                STARLING_SUCCESS);
      std::vector<float> input(kLarge, 1), output(kLarge, 0);
      starling_request* request = submit_sum(group, "read", input, &output);
      if (k % 3 == rank.rank) {
        std::this_thread::sleep_for(std::chrono::microseconds(50 * k));
        EXPECT_EQ(starling_comm_abort(group, "the test says so"), STARLING_SUCCESS);
      }
      const starling_status status = starling_wait(request, 200'000'000'000);
      EXPECT_TRUE(status == STARLING_ABORTED || status == STARLING_SUCCESS) << starling_last_error();
      if (status == STARLING_SUCCESS) {
        EXPECT_EQ(std::count(output.begin(), output.end(), 3.0f), ptrdiff_t(kLarge));
      }
      std::fill(input.begin(), input.end(), 77.0f);
      std::fill(output.begin(), output.end(), 77.0f);
      starling_request_free(request);
      EXPECT_EQ(starling_comm_destroy(group), STARLING_SUCCESS);
    }
  });
}

}  // namespace
}  // namespace starling::testing
