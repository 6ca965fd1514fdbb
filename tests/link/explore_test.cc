// Goal: in small flows failover is right whatever happens: exactly once, in order, bytes equal, never two
// epochs apart, and at an end when one path lives at last. Method: exhaustive exploration
// (link/sim/explore.h) of the shipped code. That it would see something is shown by a receiver that does not
// fence, and by planted bugs (mutations_test.cc).
// sanitize: address (one thread)
#include "link/sim/explore.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "link/cases.h"

namespace starling::link::sim {
namespace {

constexpr uint64_t kLimit = 2'000'000;

TEST(EverySchedule, OfSmallFlowsIsRight) {
  for (const FlowCase& flow : flow_cases()) {
#ifdef STARLING_SANITIZED
    if (!flow.quick || flow.setup.faults > 1) continue;
#endif
    const Explored explored = explore(flow.setup, shipped_flow_core(), kLimit);
    std::printf("%-50s %8llu states %9llu transitions, %u epochs, %u deep\n", flow.name,
                static_cast<unsigned long long>(explored.states),
                static_cast<unsigned long long>(explored.transitions), explored.most_epochs,
                explored.deepest);
    EXPECT_EQ(explored.failure, "") << flow.name;
    EXPECT_TRUE(explored.exhausted) << flow.name;
    EXPECT_GT(explored.ends, 0u) << flow.name;
    // A case in which nothing fails over shows nothing.
    if (flow.setup.faults > 0 && flow.setup.breaks) {
      EXPECT_GE(explored.most_epochs, 1 + flow.setup.faults) << flow.name;
    }
  }
}

// A receiver that calls a path closed while writes are still on their way.
FlowSetup unfenced() {
  FlowSetup setup = only(kBreaks, {.transfers = 4});
  setup.fence = false;
  return setup;
}

TEST(AnUnfencedReceiver, IsWrittenByAnOlderEpoch) {
  const Explored explored = explore(unfenced(), shipped_flow_core(), kLimit);
  EXPECT_NE(explored.failure.find("a write of epoch 1 landed after epoch 2 began"), std::string::npos)
      << explored.failure;
}

// What it is forbidden for: a slot that was read and lent again gets the bytes of its transfer before.
TEST(AnUnfencedReceiver, ReadsWrongBytes) {
  FlowSetup setup = unfenced();
  setup.check_epochs = false;
  const Explored explored = explore(setup, shipped_flow_core(), kLimit);
  EXPECT_NE(explored.failure.find("was read with wrong bytes"), std::string::npos) << explored.failure;
}

}  // namespace
}  // namespace starling::link::sim
