// Goal: a registered collective's lane is as large as its one shape needs, whatever the daemon's blocks are,
// and its results are right however its buffers change from run to run.
// Method: two ranks with eight blocks each; small and large collectives, out of place and in place in turn;
// beside a lane with a name.
#include "comm/registered.h"

namespace starling::testing {
namespace {

constexpr uint32_t kBlocks = 8;
uint64_t lane_bytes(const Rank& rank) {
  starling_statistics s{};
  s.struct_bytes = sizeof s;
  EXPECT_EQ(starling_context_statistics(rank.context, &s), STARLING_SUCCESS) << starling_last_error();
  return s.lane_bytes;
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
