// Goal: DFCCL's two programs (section 6.1) finish at their full size: eight all-reduces of 256 B to 1 MB, 200
// iterations. Method: ten seeds each on two threads, every check on. sanitize: no (sanitizers do not follow
// fibers)
#include "sim/run_seeds.h"

namespace starling::sim {
namespace {

TEST(FullSize, Dfccl1) { EXPECT_EQ(run_seeds(Campaign::kDfccl1Full, 1, 10).operations, 128000u); }
TEST(FullSize, Dfccl2) { EXPECT_EQ(run_seeds(Campaign::kDfccl2Full, 1, 10).operations, 128000u); }

}  // namespace
}  // namespace starling::sim
