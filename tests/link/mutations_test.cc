// Goal: exploration sees every bug that is planted in failover; nothing in the shipped code
// (explore_test.cc). Method: edited copies of src/link (catalogue.py) in the small flows of cases.h, until
// one goes wrong. sanitize: no (the bugs crash on purpose)
#include <gtest/gtest.h>

#include "link/hunt.h"

namespace starling::link {
namespace {

TEST(Mutations, EveryPlantedBugIsFound) {
  ASSERT_GE(mutants().size(), 25u);
  for (const Mutant& mutant : mutants())
    EXPECT_TRUE(hunt(mutant.core()).found) << mutant.name << " (" << mutant.what << ") was not seen";
}

}  // namespace
}  // namespace starling::link
