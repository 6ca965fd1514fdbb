// Goal: a registered collective's lane is as large as its one shape needs, whatever the daemon's blocks are,
// and its results are right however its buffers change from run to run.
// Method: two ranks with eight blocks each; small and large collectives, out of place and in place in turn;
// beside a lane with a name.
#include <atomic>
#include <thread>

#include "comm/threads.h"

namespace starling::testing {
namespace {

constexpr uint32_t kBlocks = 8;
const uint32_t kBoth[] = {0, 1};

uint64_t lane_bytes(const Rank& rank) {
  starling_statistics s{};
  s.struct_bytes = sizeof s;
  EXPECT_EQ(starling_context_statistics(rank.context, &s), STARLING_SUCCESS) << starling_last_error();
  return s.lane_bytes;
}

starling_operation all_reduce_of(size_t count) {
  starling_operation op = operation(STARLING_ALL_REDUCE);
  op.count = count;
  return op;
}

void register_all_reduce(Rank& rank, int64_t id, size_t count) {
  const starling_operation shape = all_reduce_of(count);
  ASSERT_EQ(starling_register(rank.comm, id, kBoth, 2, &shape), STARLING_SUCCESS) << starling_last_error();
}

void run_once(Rank& rank, int64_t id, size_t count, bool in_place) {
  std::vector<float> input(count), output(count, -1);
  for (size_t k = 0; k < count; ++k) input[k] = float(rank.rank + k % 501);
  std::vector<float>& result = in_place ? input : output;
  std::atomic<int> ended{-1};
  const auto end = [](starling_status status, const char*, void* user) {
    // Release: the results are there before it; pairs with the look below.
    static_cast<std::atomic<int>*>(user)->store(int(status), std::memory_order_release);
  };
  ASSERT_EQ(starling_run(rank.comm, id, input.data(), result.data(), end, &ended), STARLING_SUCCESS)
      << starling_last_error();
  while (ended.load(std::memory_order_acquire) == -1) std::this_thread::yield();
  ASSERT_EQ(ended.load(), int(STARLING_SUCCESS));
  for (size_t k = 0; k < count; ++k) ASSERT_EQ(result[k], float(1 + 2 * (k % 501))) << k << " of " << count;
}

TEST(Registered, ItsLaneIsAsLargeAsItsShapeNeeds) {
  run_ranks({.size = 2, .blocks = kBlocks}, [](Rank& rank) {
    constexpr size_t kCount = 256;
    register_all_reduce(rank, 1, kCount);
    run_once(rank, 1, kCount, true);  // and its group's control lane is there
    uint64_t before = lane_bytes(rank);
    register_all_reduce(rank, 2, kCount);
    run_once(rank, 2, kCount, true);
    const uint64_t registered = lane_bytes(rank) - before;
    before = lane_bytes(rank);
    std::vector<float> data(kCount, 1);
    starling_operation op = all_reduce_of(kCount);
    op.lane = "named";
    op.input = op.output = data.data();
    starling_request* request = nullptr;
    ASSERT_EQ(starling_submit(rank.comm, &op, &request), STARLING_SUCCESS) << starling_last_error();
    expect_done(request);
    const uint64_t named = lane_bytes(rank) - before;
    EXPECT_GT(registered, 0u);
    EXPECT_LT(2 * registered, named) << "a named one has connectors for " << kBlocks << " blocks";
  });
}

TEST(Registered, BuffersMayChangeFromRunToRun) {
  run_ranks({.size = 2, .blocks = kBlocks}, [](Rank& rank) {
    int64_t id = 0;
    for (const size_t count : {1u, 300u, 100'000u, 400'000u})
      for (const bool in_place_first : {false, true}) {
        register_all_reduce(rank, ++id, count);
        for (uint32_t round = 0; round < 4; ++round)
          run_once(rank, id, count, (round % 2 == 0) == in_place_first);
      }
  });
}

}  // namespace
}  // namespace starling::testing
