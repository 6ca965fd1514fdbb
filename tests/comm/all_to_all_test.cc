// Goal: all_to_all with counts works in place where both sides have the same table. Method: four ranks, a
// symmetric table of unequal parts (0 among them), from a few elements to many slots; who sent what is known.
#include "comm/threads.h"

namespace starling::testing {
namespace {

size_t elements_between(uint32_t a, uint32_t b, size_t scale) { return ((a + b) % 5) * scale + (a == b); }

void exchange(Rank& rank, size_t scale) {
  std::vector<size_t> counts;
  std::vector<float> buffer;
  for (uint32_t peer = 0; peer < rank.size; ++peer) {
    counts.push_back(elements_between(rank.rank, peer, scale));
    buffer.insert(buffer.end(), counts.back(), float(100 * rank.rank + peer));
  }
  starling_operation op = operation(STARLING_ALL_TO_ALL);
  op.input = op.output = buffer.data();
  op.input_counts = op.output_counts = counts.data();
  starling_request* request = nullptr;
  ASSERT_EQ(starling_submit(rank.comm, &op, &request), STARLING_SUCCESS) << starling_last_error();
  expect_done(request);
  size_t next = 0;
  for (uint32_t peer = 0; peer < rank.size; ++peer)
    for (size_t k = 0; k < counts[peer]; ++k)
      ASSERT_EQ(buffer[next++], float(100 * peer + rank.rank)) << "from rank " << peer << ", element " << k;
}

TEST(AllToAll, WithCountsInPlace) {
  for (const uint32_t blocks : {1u, 2u}) {
    RankOptions options;
    options.blocks = blocks;
    run_ranks(options, [](Rank& rank) {
      for (const size_t scale : {1u, 1000u, 100000u}) exchange(rank, scale);
    });
  }
}

}  // namespace
}  // namespace starling::testing
