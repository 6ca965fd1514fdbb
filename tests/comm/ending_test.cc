// Goal: what fails on the poller's thread fails the operation, and what is destroyed with work under way ends
// soon. Method: a receive from any source is found when the segment has no room for its lane; communicators
// are destroyed with operations that nobody else will ever call.
#include <algorithm>
#include <atomic>
#include <chrono>

#include "comm/threads.h"

namespace starling::testing {
namespace {

uint64_t milliseconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return uint64_t(
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start)
          .count());
}

TEST(Poller, AnErrorOfItIsTheReceives) {
  constexpr uint64_t kMessages = 24;  // some 300 KB of lane each; the last rank's segment has room for few
  RankOptions options;
  options.size = 2;
  options.last_arena_bytes = uint64_t(6) << 20;
  std::atomic<bool> all_received{false};
  run_ranks(options, [&](Rank& rank) {
    std::vector<float> values(kMessages, 1);
    std::vector<starling_request*> requests;
    if (rank.rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    for (uint64_t k = 0; k < kMessages; ++k) {
      starling_operation op = operation(rank.rank == 0 ? STARLING_SEND : STARLING_RECV);
      op.peer = rank.rank == 0 ? 1 : -1;
      op.tag = k;
      op.count = 1;
      op.input = op.output = &values[k];
      requests.push_back(nullptr);
      ASSERT_EQ(starling_submit(rank.comm, &op, &requests.back()), STARLING_SUCCESS) << starling_last_error();
    }
    if (rank.rank == 0) {
      // What it sent to nobody ends with this.
      while (!all_received) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_EQ(starling_comm_abort(rank.comm, "the test says so"), STARLING_SUCCESS);
    }
    uint64_t exhausted = 0;
    for (starling_request* request : requests) {
      const starling_status status = starling_wait(request, 200'000'000'000);
      exhausted += status == STARLING_EXHAUSTED;
      const bool expected = status == STARLING_SUCCESS || status == STARLING_EXHAUSTED;
      EXPECT_TRUE(expected || rank.rank == 0) << starling_last_error();  // what rank 0 sent may find nobody
      starling_request_free(request);
    }
    EXPECT_EQ(exhausted > 0, rank.rank == 1);
    if (rank.rank == 1) all_received = true;
  });
}

// What the group's first rank gave up before we had come to anything of it.
TEST(Poller, AReceiveThatComesAfterAnAbortHearsOfIt) {
  RankOptions options;
  options.size = 2;
  std::atomic<bool> aborted{false}, told{false};
  run_ranks(options, [&](Rank& rank) {
    if (rank.rank == 1) {
      EXPECT_EQ(starling_comm_abort(rank.comm, "the test says so"), STARLING_SUCCESS);
      aborted = true;
      while (!told) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    while (!aborted) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    float value = 0;
    starling_operation op = operation(STARLING_RECV);
    op.peer = -1;
    op.output = &value;
    op.count = 1;
    starling_request* request = nullptr;
    const uint64_t ms = milliseconds_of([&] {
      EXPECT_EQ(starling_submit(rank.comm, &op, &request), STARLING_SUCCESS) << starling_last_error();
      EXPECT_EQ(starling_wait(request, options.timeout_ns), STARLING_ABORTED) << starling_last_error();
    });
    EXPECT_LT(ms, 20'000u) << "not after a timeout";
    starling_request_free(request);
    told = true;
  });
}

// Of a group with receives under way that nobody will serve.
uint64_t destruction_ms(Rank& rank, const std::string& name) {
  float value = 0;
  starling_operation op = operation(STARLING_RECV);
  op.output = &value;
  op.count = 1;
  const uint32_t all[] = {0, 1};
  starling_comm* group = nullptr;
  EXPECT_EQ(starling_comm_subgroup(rank.comm, all, rank.size, name.c_str(), &group), STARLING_SUCCESS);
  std::vector<starling_request*> requests;
  for (const int32_t peer : {-1, int32_t(rank.rank)}) {
    op.peer = peer;
    requests.push_back(nullptr);
    EXPECT_EQ(starling_submit(group, &op, &requests.back()), STARLING_SUCCESS) << starling_last_error();
  }
  const uint64_t ms = milliseconds_of([&] { EXPECT_EQ(starling_comm_destroy(group), STARLING_SUCCESS); });
  for (starling_request* request : requests) {
    EXPECT_EQ(starling_wait(request, 0), STARLING_ABORTED) << starling_last_error();
    starling_request_free(request);
  }
  return ms;
}

// Elsewhere a destroyer waits half a second for its work. One of several destructions must be quicker: on a
// machine that is busy, not each of them is.
TEST(Destruction, IsImmediateWhereNobodyElseIsConcerned) {
  for (const uint32_t size : {1u, 2u}) {
    RankOptions options;
    options.size = size;
    run_ranks(options, [](Rank& rank) {
      uint64_t shortest_ms = UINT64_MAX;
      for (int k = 0; k < 50 && shortest_ms >= 400; ++k)
        shortest_ms = std::min(shortest_ms, destruction_ms(rank, "group " + std::to_string(k)));
      EXPECT_LT(shortest_ms, 400u);
    });
  }
}

TEST(Destruction, IsBoundedWhereOthersDoNotCall) {
  RankOptions options;
  options.size = 2;
  run_ranks(options, [](Rank& rank) {
    if (rank.rank == 1) return;
    std::vector<float> values(1 << 20, 1);
    const uint32_t both[] = {0, 1};
    starling_comm* group = nullptr;
    ASSERT_EQ(starling_comm_subgroup(rank.comm, both, 2, "group", &group), STARLING_SUCCESS);
    starling_operation op = operation(STARLING_ALL_REDUCE);
    op.input = op.output = values.data();
    op.count = values.size();
    starling_request* request = nullptr;
    ASSERT_EQ(starling_submit(group, &op, &request), STARLING_SUCCESS) << starling_last_error();
    EXPECT_EQ(starling_comm_destroy(group), STARLING_SUCCESS);
    EXPECT_EQ(starling_wait(request, 0), STARLING_ABORTED);  // and not that its time was up
    starling_request_free(request);
  });
}

}  // namespace
}  // namespace starling::testing
