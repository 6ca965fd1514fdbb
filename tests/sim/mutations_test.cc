// Goal: the simulator sees every planted bug soon, and nothing in the shipped code.
// Method: edited copies of src/device (catalogue.py) run seed after seed until a check fails; two at a time.
// sanitize: no (the bugs crash on purpose, and sanitizers do not follow fibers)
#include <gtest/gtest.h>

#include <atomic>

#include "sim/hunt.h"

namespace starling::sim {
namespace {

constexpr double kLongestHuntSeconds = 400;  // on a slow machine; docs/MUTATIONS.md says what they take

TEST(Mutations, EveryPlantedBugIsFound) {
  const auto& list = mutants();
  ASSERT_GE(list.size(), 25u);
  std::vector<Found> results(list.size());
  std::atomic<size_t> next = 0;
  auto work = [&] {
    for (size_t k; (k = next++) < list.size();) results[k] = hunt(list[k].core(), kLongestHuntSeconds);
  };
  std::thread other(work);
  work();
  other.join();
  for (size_t k = 0; k < list.size(); ++k)
    EXPECT_TRUE(results[k].found) << list[k].name << " (" << list[k].what << ") was not seen in "
                                  << results[k].seeds << " seeds";
}

TEST(Mutations, TheShippedCodePassesTheSameHunt) {
  const Found found = hunt(shipped_core(), 3);
  EXPECT_FALSE(found.found) << found.how;
  EXPECT_GT(found.seeds, 0u);
}

}  // namespace
}  // namespace starling::sim
