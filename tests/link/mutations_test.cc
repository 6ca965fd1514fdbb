// Goal: exploration sees every bug that is planted in failover, and the conformance suite most of them;
// nothing in the shipped code (explore_test.cc, conformance_test.cc). Method: edited copies of src/link
// (catalogue.py) in the small flows of cases.h, and under the suite in the simulated network, until something
// goes wrong. sanitize: no (the bugs crash on purpose)
#include <gtest/gtest.h>

#include "link/hunt.h"
#include "link/sim_rig.h"

namespace starling::link {
namespace {

TEST(Mutations, EveryPlantedBugIsFound) {
  ASSERT_GE(mutants().size(), 25u);
  for (const Mutant& mutant : mutants())
    EXPECT_TRUE(hunt(mutant.core()).found) << mutant.name << " (" << mutant.what << ") was not seen";
}

// Those that it does not see need a second fault, or a fence, at one moment of a flow.
TEST(Mutations, TheConformanceSuiteSeesMostOfThem) {
  using namespace conformance;
  size_t seen = 0;
  for (const Mutant& mutant : mutants()) {
    const Outcome outcome = in_child([&]() -> std::string {
      alarm(200);  // a bug may loop for ever
      sim::WireSettings wires;
      wires.jitter_ns = 30'000;
      const LinkKind link{"sim", kAllFaults, 30, [&](const RigOptions& options) {
                            return std::make_unique<SimRig>(options, wires, mutant.core());
                          }};
      for (const Case& entry : kCases) try {
          entry.run(link);
        } catch (const Failure& failure) {
          return entry.name + (": " + failure.why);
        }
      return {};
    });
    seen += outcome.signal != 0 || !outcome.text.empty();
  }
  std::printf("%zu of %zu planted bugs\n", seen, mutants().size());
  EXPECT_GE(seen, 20u);
}

}  // namespace
}  // namespace starling::link
