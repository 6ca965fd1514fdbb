// Runs seeds of a campaign on two threads; tells the story of the first one that fails.
#pragma once
#include <gtest/gtest.h>

#include "machine/sim/soak.h"
#include "support/full_tests.h"

namespace starling::sim {

inline Report run_seeds(Campaign campaign, uint64_t first, uint64_t count) {
  Soak soak(campaign, first, 2);
  soak.run(550, count);
  EXPECT_EQ(soak.seeds(), count) << "the time was not enough";
  for (const FailedSeed& failed : soak.failures()) {
    Simulation simulation;
    const Case drawn = draw_case(campaign, failed.seed, simulation.plans());
    ADD_FAILURE() << campaign_name(campaign) << " seed " << failed.seed << ": " << failed.failure << "\n"
                  << story(simulation, shrink(simulation, drawn).smallest);
    break;  // one story is enough
  }
  const Report& total = soak.total();
  std::printf("%s: %llu seeds, %llu operations, %llu instructions, %llu parks, %llu quits, %llu steps\n",
              campaign_name(campaign), static_cast<unsigned long long>(soak.seeds()),
              static_cast<unsigned long long>(total.operations),
              static_cast<unsigned long long>(total.instructions),
              static_cast<unsigned long long>(total.parks), static_cast<unsigned long long>(total.quits),
              static_cast<unsigned long long>(total.slices));
  return total;
}

// A seed draws the same again, and keeping its story changes nothing.
inline void expect_exact_replays(Campaign campaign) {
  Simulation first, second;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const Case a = draw_case(campaign, seed, first.plans());
    const Report once = first.run(a.program, a.options, a.seed);
    const Case b = draw_case(campaign, seed, second.plans());
    Options traced = b.options;
    traced.trace_capacity = 1024;
    const Report twice = second.run(b.program, traced, b.seed);
    EXPECT_EQ(once.slices, twice.slices) << "seed " << seed;
    EXPECT_EQ(once.virtual_ns, twice.virtual_ns) << "seed " << seed;
    EXPECT_EQ(once.parks, twice.parks) << "seed " << seed;
  }
}

}  // namespace starling::sim
