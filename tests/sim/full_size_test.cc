// Goal: DFCCL's two programs (section 6.1) finish at their full size: eight all-reduces of 256 B to 1 MB, 200
// iterations. Method: three seeds each on two threads, every check on; FULL_TESTS=1: ten.
// sanitize: no (sanitizers do not follow fibers)
#include "sim/run_seeds.h"

namespace starling::sim {
namespace {

TEST(FullSize, Dfccl1) {
  const uint64_t seeds = part_of(10);
  EXPECT_EQ(run_seeds(Campaign::kDfccl1Full, 1, seeds).operations, 12'800 * seeds);
}
TEST(FullSize, Dfccl2) {
  const uint64_t seeds = part_of(10);
  EXPECT_EQ(run_seeds(Campaign::kDfccl2Full, 1, seeds).operations, 12'800 * seeds);
}

}  // namespace
}  // namespace starling::sim
