// Goal: operations that do not match are errors on every rank, also when one rank has submitted far ahead.
// Method: rank 0 submits many operations of one lane before rank 1 submits its first, which has another
// count.
#include <chrono>

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

}  // namespace
}  // namespace starling::testing
