// Goal: lanes of copies do what they must beside kernels, streams and each other: right bytes behind every
// wait, no buffer touched by a peer after its owner has it back, and whoever waits ends, whatever breaks.
// Method: the campaign `copies` of machine/sim/campaign.h, every check on; a failing seed is shrunk and told.
// sanitize: no (sanitizers do not follow fibers)
#include <gtest/gtest.h>

#include "sim/run_seeds.h"

namespace starling::sim {
namespace {

TEST(SimCopyCampaign, LanesOfCopiesBesideKernels) {
  const uint64_t seeds = part_of(3000);
  const Report report = run_seeds(Campaign::kCopies, 1, seeds);
  EXPECT_GT(report.copied, 10 * seeds);
  EXPECT_GT(report.started_as_kernel, seeds / 3);
}

TEST(SimCopyCampaign, ASeedReplaysExactly) { expect_exact_replays(Campaign::kCopies); }

}  // namespace
}  // namespace starling::sim
