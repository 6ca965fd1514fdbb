// Goal: exploration sees every bug that is planted in failover, and the conformance suite most of them;
// nothing in the shipped code (explore_test.cc, conformance_test.cc). Method: edited copies of src/link
// (catalogue.py) in the small flows of cases.h, and under the suite in the simulated network, until something
// goes wrong. sanitize: no (the bugs crash on purpose)
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "link/hunt.h"
#include "link/sim_rig.h"

namespace starling::link {
namespace {

TEST(Mutations, EveryPlantedBugIsFound) {
  ASSERT_GE(mutants().size(), 25u);
  for (const Mutant& mutant : mutants())
    EXPECT_TRUE(hunt(mutant.core()).found) << mutant.name << " (" << mutant.what << ") was not seen";
}

// They need a second fault, or a fence, at one moment of a flow: the hunt above makes that moment.
constexpr const char* kBeyondTheSuite[] = {"resume_on_older_attempt",
                                           "attempt_not_counted",
                                           "lost_data_overlooked",
                                           "incarnation_used_twice",
                                           "proposal_sent_once",
                                           "waits_on_dead_paths",
                                           "agrees_before_quiet",
                                           "closing_taken_for_closed",
                                           "landed_while_closing_is_not_counted",
                                           "later_attempt_ignored",
                                           "first_refusal_ends_the_sender",
                                           "first_refusal_ends_the_receiver"};

TEST(Mutations, TheConformanceSuiteSeesTheOthers) {
  using namespace conformance;
  for (const Mutant& mutant : mutants()) {
    if (std::find(std::begin(kBeyondTheSuite), std::end(kBeyondTheSuite), std::string_view(mutant.name)) !=
        std::end(kBeyondTheSuite))
      continue;
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
    EXPECT_TRUE(outcome.signal != 0 || !outcome.text.empty()) << mutant.name << " (" << mutant.what << ")";
  }
}

}  // namespace
}  // namespace starling::link
