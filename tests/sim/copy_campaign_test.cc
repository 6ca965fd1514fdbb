// Goal: lanes of copies do what they must beside kernels, streams and each other: right bytes behind every
// wait, no buffer touched by a peer after its owner has it back, and whoever waits ends, whatever breaks.
// Method: the campaign `copies` of machine/sim/campaign.h, every check on; a failing seed is shrunk and told.
// sanitize: no (sanitizers do not follow fibers)
#include <gtest/gtest.h>

#include "sim/run_seeds.h"

namespace starling::sim {
namespace {

TEST(SimCopyCampaign, LanesOfCopiesBesideKernels) {
  const Report report = run_seeds(Campaign::kCopies, 1, 3000);
  EXPECT_GT(report.copied, 30'000u);
  EXPECT_GT(report.started_as_kernel, 1000u);
}

TEST(SimCopyCampaign, ASeedReplaysExactly) { expect_exact_replays(Campaign::kCopies); }

}  // namespace
}  // namespace starling::sim
