// Goal: GPUs on several hosts: operations on streams whose messages proxies carry give the right bytes, once,
// within a bound, whatever streams, daemons and paths do; the proxies end; a dead peer releases every stream.
// Method: the campaigns between hosts of machine/sim/campaign.h, every check on; a failing seed is shrunk and
// told. sanitize: no (sanitizers do not follow fibers)
#include <gtest/gtest.h>

#include "machine/sim/campaign.h"
#include "sim/run_seeds.h"

namespace starling::sim {
namespace {

const uint64_t kSeeds = part_of(1000);  // of each campaign

TEST(Hosts, Streams) {
  const Report report = run_seeds(Campaign::kHosts, 1, kSeeds);
  EXPECT_GT(report.carried, 20 * kSeeds);
  EXPECT_GT(report.started_as_kernel, 10 * kSeeds);
  EXPECT_GT(report.launches, 2 * kSeeds) << "the daemon was hardly needed: the orders are too tame";
}

TEST(Hosts, APeerDies) { EXPECT_GT(run_seeds(Campaign::kHostsDeath, 1, kSeeds).carried, 2 * kSeeds); }

// Nobody on one host needs a proxy.
TEST(Hosts, OneHostCarriesNothing) { EXPECT_EQ(run_seeds(Campaign::kStreams, 1, 100).carried, 0u); }

TEST(Hosts, ASeedReplaysExactly) {
  Simulation first, second;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const Case a = draw_case(Campaign::kHosts, seed, first.plans());
    const Report once = first.run(a.program, a.options, a.seed);
    const Case b = draw_case(Campaign::kHosts, seed, second.plans());
    const Report twice = second.run(b.program, b.options, b.seed);
    EXPECT_EQ(once.slices, twice.slices) << "seed " << seed;
    EXPECT_EQ(once.virtual_ns, twice.virtual_ns) << "seed " << seed;
    EXPECT_EQ(once.carried, twice.carried) << "seed " << seed;
  }
}

// Why a proxy counts operations that are under way: one that is told of none hears nothing of what blocks
// store, and whoever waits for their messages waits for ever.
TEST(Hosts, AProxyThatHearsOfNoOperationHangs) {
  Simulation simulation;
  uint32_t hangs = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Case drawn = draw_case(Campaign::kHosts, seed, simulation.plans());
    drawn.options.proxies_hear = 0;
    drawn.options.nap_chance = 0;
    drawn.options.progress_bound_ns = 5'000'000;
    const Report report = simulation.run(drawn.program, drawn.options, drawn.seed);
    hangs += report.failure.find("deadlock") == 0 || report.failure.find("no progress") == 0;
  }
  EXPECT_GT(hangs, 10u);
  std::printf("%u of 50 programs hang\n", hangs);
}

}  // namespace
}  // namespace starling::sim
