// Goal: where memory, or room in the segment, is missing, the call or the operation ends with an error on
// every rank, nothing of it runs later, and the communicator can be used, aborted and destroyed. Method:
// allocations of a thread are made to fail. sanitize: no (they have allocations of their own)
#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cstdlib>

#include "comm/threads.h"

namespace {

thread_local int fails_in = 0;  // this thread's n-th allocation from now; 0: none
thread_local int fail_more = 0;  // and so many behind it

}  // namespace

// In the place of the C library's, by which the CPU's place takes its memory.
extern "C" void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  static const auto real = reinterpret_cast<void* (*)(size_t, size_t)>(dlsym(RTLD_NEXT, "aligned_alloc"));
  if (fails_in > 0 && --fails_in == 0) {
    if (fail_more > 0) {
      --fail_more;
      fails_in = 1;
    }
    return nullptr;
  }
  return real(alignment, bytes);
}

namespace starling::testing {
namespace {

constexpr int64_t kBoundNs = 100'000'000'000;

void nap(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

RankOptions two() {
  RankOptions options;
  options.size = 2;
  return options;
}

starling_status submit(Rank& rank, starling_collective kind, const char* lane, std::vector<float>& input,
                       std::vector<float>& output, starling_request** request) {
  starling_operation op = operation(kind);
  op.lane = lane;
  op.input = input.data();
  op.output = output.data();
  op.count = input.size();
  return starling_submit(rank.comm, &op, request);
}

starling_status ended(starling_request* request) {
  const starling_status status = starling_wait(request, kBoundNs);
  starling_request_free(request);
  return status;
}

void expect_all_reduced(Rank& rank, const char* lane) {
  std::vector<float> input(4, 1.0f), output(4);
  starling_request* request = nullptr;
  ASSERT_EQ(submit(rank, STARLING_ALL_REDUCE, lane, input, output, &request), STARLING_SUCCESS)
      << starling_last_error();
  EXPECT_EQ(ended(request), STARLING_SUCCESS) << starling_last_error();
  EXPECT_EQ(output, std::vector<float>(4, 2.0f));
}

TEST(NoMemory, AnOperationThatHasNoneEndsOnAllRanks) {
  run_ranks(two(), [](Rank& rank) {
    expect_all_reduced(rank, "short");
    std::vector<float> none;
    starling_request* request = nullptr;
    if (rank.rank == 1) {
      nap(100);
      fails_in = fail_more = 1;  // it asks again when it gets its place
    }
    ASSERT_EQ(submit(rank, STARLING_BARRIER, "short", none, none, &request), STARLING_SUCCESS);
    ASSERT_EQ(fails_in, 0) << "it took no memory";
    EXPECT_EQ(ended(request), STARLING_INTERNAL) << "rank " << rank.rank;
    EXPECT_NE(std::string(starling_last_error()).find("rank 1: lane 'short' cannot go on"), std::string::npos)
        << starling_last_error();
    expect_all_reduced(rank, "another");
  });
}

class HalfOpened : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(NoMemory, HalfOpened, ::testing::Values(1, 2, 3));

TEST_P(HalfOpened, ALaneIsOpenedLater) {
  run_ranks(two(), [](Rank& rank) {
    std::vector<float> input(4, 1.0f), output(4);
    starling_request* request = nullptr;
    if (rank.rank == 1) {
      nap(50);
      fails_in = GetParam();
      EXPECT_EQ(submit(rank, STARLING_ALL_REDUCE, "late", input, output, &request), STARLING_EXHAUSTED);
      ASSERT_EQ(fails_in, 0) << "it took less memory";
    }
    expect_all_reduced(rank, "late");
  });
}

TEST_P(HalfOpened, ALaneCanBeDestroyed) {
  run_ranks(two(), [](Rank& rank) {
    std::vector<float> input(4, 1.0f), output(4);
    starling_request* request = nullptr;
    if (rank.rank == 1) {
      nap(50);
      fails_in = GetParam();
      EXPECT_EQ(submit(rank, STARLING_ALL_REDUCE, "late", input, output, &request), STARLING_EXHAUSTED);
      return;
    }
    ASSERT_EQ(submit(rank, STARLING_ALL_REDUCE, "late", input, output, &request), STARLING_SUCCESS);
    EXPECT_EQ(ended(request), STARLING_PEER_FAILED) << starling_last_error();
  });
}

TEST(NoMemory, WhoHasNoRoomForALaneCanAbort) {
  RankOptions options = two();
  options.last_arena_bytes = 4456448;
  run_ranks(options, [](Rank& rank) {
    std::vector<float> input(1 << 18, 1.0f), output(1 << 18);
    starling_request* request = nullptr;
    if (rank.rank == 1) {
      nap(50);
      EXPECT_EQ(submit(rank, STARLING_ALL_REDUCE, "large", input, output, &request), STARLING_EXHAUSTED);
      EXPECT_EQ(starling_comm_abort(rank.comm, "no room"), STARLING_SUCCESS);
      return;
    }
    ASSERT_EQ(submit(rank, STARLING_ALL_REDUCE, "large", input, output, &request), STARLING_SUCCESS);
    EXPECT_EQ(ended(request), STARLING_ABORTED) << starling_last_error();
  });
}

}  // namespace
}  // namespace starling::testing
