// Goal: the simulator sees every planted bug soon, and nothing in the shipped code.
// Method: edited copies of src/device (catalogue.py) run the seed that docs/MUTATIONS.md has for them; where
// that shows nothing any more, seed after seed until a check fails. Two at a time. sanitize: no (the bugs
// crash on purpose, and sanitizers do not follow fibers)
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <map>
#include <sstream>

#include "sim/hunt.h"

namespace starling::sim {
namespace {

constexpr double kLongestHuntSeconds = 400;  // on a slow machine; docs/MUTATIONS.md says what they take

// By bug, the seed that the page has: a failing seed replays exactly, until the simulator or the core
// changes.
std::map<std::string, uint64_t> known_seeds() {
  std::ifstream page(STARLING_SOURCE_DIR "/docs/MUTATIONS.md");
  std::map<std::string, uint64_t> seeds;
  for (std::string line; std::getline(page, line);) {
    std::istringstream cells(line);
    std::string cell[5];  // "", bug, in, what it is, seeds
    for (std::string& text : cell) std::getline(cells, text, '|');
    if (cell[1].size() > 2)
      seeds[cell[1].substr(1, cell[1].size() - 2)] = std::strtoull(cell[4].c_str(), nullptr, 10);
  }
  return seeds;
}

TEST(Mutations, EveryPlantedBugIsFound) {
  const auto& list = mutants();
  ASSERT_GE(list.size(), 25u);
  std::map<std::string, uint64_t> known = known_seeds();
  for (const Mutant& mutant : list)
    ASSERT_TRUE(known.contains(mutant.name)) << mutant.name << ": write the page anew";
  std::vector<Found> results(list.size());
  std::atomic<size_t> next = 0;
  auto work = [&] {
    for (size_t k; (k = next++) < list.size();)
      results[k] = hunt(&list[k], kLongestHuntSeconds, known.at(list[k].name));
  };
  std::thread other(work);
  work();
  other.join();
  for (size_t k = 0; k < list.size(); ++k)
    EXPECT_TRUE(results[k].found) << list[k].name << " (" << list[k].what << ") was not seen in "
                                  << results[k].seeds << " seeds";
}

TEST(Mutations, TheShippedCodePassesTheSameHunt) {
  const Found found = hunt(nullptr, 3);
  EXPECT_FALSE(found.found) << found.how;
  EXPECT_GT(found.seeds, 0u);
}

// The copy that most bugs share, with none of them planted.
TEST(Mutations, ASharedCopyWithoutABugPassesTheSameHunt) {
  Mutant none = mutants().front();
  none.number = -1;
  const Found found = hunt(&none, 3);
  EXPECT_FALSE(found.found) << found.how;
  EXPECT_GT(found.seeds, 0u);
}

}  // namespace
}  // namespace starling::sim
