// sanitize: no (it runs programs with planted bugs)
// Goal: named_test.cc finds the bugs of named_catalogue.py. Method: it is linked once more with edited
// sources in place of the shipped ones, and told which bug is there; the test that the catalogue names must
// fail there, not here.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <sstream>
#include <string>

namespace starling::link {
namespace {

struct Planted {
  const char* name;
  const char* what;
  const char* test;
  const char* program;
  int number;
};
constexpr Planted kPlanted[] = {
#include "named_mutants.inc"
};

// 0: the test was run, and passed.
int status_of(const std::string& program, const char* test, int bug = -1) {
  const std::string output = testing::TempDir() + "named_mutant_" + std::to_string(getpid());
  // Its report would be taken for that of the test's own run.
  std::ostringstream command;
  command << "env -u GTEST_OUTPUT PLANTED_BUG=" << bug << " timeout 120 '" << STARLING_TEST_BIN_DIR << "/"
          << program << "' --gtest_filter=" << test << " >'" << output
          << "' 2>&1 && grep -q '  PASSED  . 1 test' '" << output << "'";
  const int status = std::system(command.str().c_str());
  std::remove(output.c_str());
  return status;
}

TEST(PlantedBugsOfNamedMessages, AreFound) {
  for (const Planted& bug : kPlanted) {
    SCOPED_TRACE(bug.name);
    EXPECT_EQ(status_of("link.named_test", bug.test), 0);
    const int status = status_of(bug.program, bug.test, bug.number);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 1) << "not found: " << bug.what;
  }
}

// The sources that most of them share, with none planted.
TEST(PlantedBugsOfNamedMessages, WithoutOneNothingIsFound) {
  EXPECT_EQ(status_of(kPlanted[0].program, kPlanted[0].test), 0);
}

}  // namespace
}  // namespace starling::link
