// Goal: a daemon of 1 to 4 blocks, with each completion queue, runs many lanes at a time without losing
// anything. Method: ranks as threads submit a hundred all-reduces in eight lanes, in an order of their own,
// with a device synchronization now and then and minimal budgets. Meant for the sanitizers.
#include <algorithm>
#include <numeric>
#include <random>

#include "comm/threads.h"

namespace starling::testing {
namespace {

#ifdef STARLING_SANITIZED
constexpr int kRounds = 3;
#else
constexpr int kRounds = 20;
#endif
constexpr int kLanes = 8;

void rounds(Rank& rank) {
  std::mt19937 random(rank.rank);
  std::vector<int> order(kLanes);
  std::iota(order.begin(), order.end(), 0);
  for (int round = 0; round < kRounds; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    std::vector<std::vector<int64_t>> buffers(kLanes);
    std::vector<starling_request*> requests;
    for (int k : order) {
      buffers[k].assign(size_t(1) << (2 + k), round + int64_t(rank.rank));
      starling_operation op = operation(STARLING_ALL_REDUCE);
      const std::string lane = std::to_string(k);
      op.lane = lane.c_str();
      op.data_type = STARLING_INT64;
      op.input = op.output = buffers[k].data();
      op.count = buffers[k].size();
      starling_request* request = nullptr;
      ASSERT_EQ(starling_submit(rank.comm, &op, &request), STARLING_SUCCESS) << starling_last_error();
      requests.push_back(request);
    }
    if (round % 4 == 0) {
      ASSERT_EQ(starling_context_synchronize(rank.context), STARLING_SUCCESS);
    }
    for (starling_request* request : requests) expect_done(request);
    const int64_t n = rank.size;
    for (const auto& buffer : buffers)
      for (int64_t value : buffer) ASSERT_EQ(value, n * round + n * (n - 1) / 2);
  }
}

class Blocks : public ::testing::TestWithParam<std::tuple<uint32_t, const char*>> {};

TEST_P(Blocks, ManyLanes) {
  RankOptions options;
  options.blocks = std::get<0>(GetParam());
  options.completion_queue = std::get<1>(GetParam());
  options.scheduling.initial_budget_ns = options.scheduling.minimum_budget_ns = 1;
  options.scheduling.fixed = 1;
  run_ranks(options, rounds);
}

INSTANTIATE_TEST_SUITE_P(BlocksAndQueues, Blocks,
                         ::testing::Combine(::testing::Values(1u, 2u, 3u, 4u),
                                            ::testing::Values("ring", "packed_ring", "slots")));

}  // namespace
}  // namespace starling::testing
