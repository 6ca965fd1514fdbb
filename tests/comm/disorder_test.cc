// Goal: programs that hang other libraries finish with right sums (DFCCL §6.1, programs 1 and 2).
// Method: ranks as threads, every rank launching the same named all-reduces in its own random order, with and
// without device synchronizations in between.
#include <algorithm>
#include <random>

#include "comm/threads.h"

namespace starling::testing {
namespace {

#ifdef STARLING_SANITIZED
constexpr int kIterations = 4;
#else
constexpr int kIterations = 40;
#endif
constexpr uint64_t kBytes[] = {256, 147456, 2048, 1024, 65536, 147456, 524288, 1048576};

struct Buffers {
  std::vector<float> input, output;
};

void check(const Rank& rank, const Buffers& buffers, int iteration) {
  const float n = float(rank.size);
  for (size_t i = 0; i < buffers.output.size(); i += 97) {
    const float expected = n * float(i % 31 + iteration) + n * (n - 1) / 2;
    ASSERT_EQ(buffers.output[i], expected) << "rank " << rank.rank << " element " << i;
  }
}

void disordered_rounds(Rank& rank, int synchronize_every) {
  std::mt19937 random(1000 + rank.rank);
  std::vector<int> order{0, 1, 2, 3, 4, 5, 6, 7};
  std::vector<Buffers> all(8);
  for (int k = 0; k < 8; ++k) {
    all[k].input.resize(kBytes[k] / 4);
    all[k].output.resize(kBytes[k] / 4);
  }
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    std::shuffle(order.begin(), order.end(), random);
    std::vector<starling_request*> requests;
    int submitted = 0;
    for (int k : order) {
      Buffers& b = all[k];
      for (size_t i = 0; i < b.input.size(); ++i) b.input[i] = float(i % 31 + iteration) + float(rank.rank);
      std::fill(b.output.begin(), b.output.end(), -1.0f);
      starling_operation op = operation(STARLING_ALL_REDUCE);
      const std::string lane = "gradient " + std::to_string(k);
      op.lane = lane.c_str();
      op.input = b.input.data();
      op.output = b.output.data();
      op.count = b.input.size();
      starling_request* request = nullptr;
      ASSERT_EQ(starling_submit(rank.comm, &op, &request), STARLING_SUCCESS) << starling_last_error();
      requests.push_back(request);
      if (synchronize_every != 0 && ++submitted % synchronize_every == 0) {
        ASSERT_EQ(starling_context_synchronize(rank.context), STARLING_SUCCESS);
      }
    }
    for (starling_request* request : requests) expect_done(request);
    for (const Buffers& b : all) check(rank, b, iteration);
  }
}

class Disorder : public ::testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(Disorder, EightRanks) {
  RankOptions options;
  options.size = 8;
  options.blocks = uint32_t(std::get<0>(GetParam()));
  run_ranks(options, [](Rank& rank) { disordered_rounds(rank, std::get<1>(GetParam())); });
}

INSTANTIATE_TEST_SUITE_P(BlocksAndSynchronization, Disorder,
                         ::testing::Combine(::testing::Values(1, 2), ::testing::Values(0, 1, 2, 4)));

}  // namespace
}  // namespace starling::testing
