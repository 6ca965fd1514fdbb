// Goal: failover is right in flows that are too long to explore: up to 64 transfers, 3 paths, 12 faults,
// either policy. Method: by seed (link/sim/walk.h); a failure prints its seed, which replays it:
// link.explore_program seeds 1 SEED.
// sanitize: address (one thread)
#include "link/sim/walk.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace starling::link::sim {
namespace {

TEST(Walks, EverySeedComesToItsEndWithEveryByteRight) {
#ifdef STARLING_SANITIZED
  constexpr uint64_t kSeeds = 100;
#else
  constexpr uint64_t kSeeds = 10'000;
#endif
  uint64_t failovers = 0, steps = 0, died = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Walked walked = walk(seed, shipped_flow_core());
    ASSERT_EQ(walked.failure, "");
    failovers += walked.epochs;
    steps += walked.steps;
    died += walked.died;
  }
  std::printf("%llu seeds, %llu steps, %llu failovers and failbacks, %llu with a dead end\n",
              static_cast<unsigned long long>(kSeeds), static_cast<unsigned long long>(steps),
              static_cast<unsigned long long>(failovers), static_cast<unsigned long long>(died));
  EXPECT_GT(failovers, kSeeds / 2);
  EXPECT_GT(died, 0u);
}

// The same seed is the same walk.
TEST(Walks, ReplayExactly) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Walked first = walk(seed, shipped_flow_core()), second = walk(seed, shipped_flow_core());
    EXPECT_EQ(first.steps, second.steps);
    EXPECT_EQ(first.epochs, second.epochs);
  }
}

}  // namespace
}  // namespace starling::link::sim
