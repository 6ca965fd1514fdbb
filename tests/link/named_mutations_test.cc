// sanitize: no (it runs programs with planted bugs)
// Goal: named_test.cc finds the bugs of named_catalogue.py. Method: it is linked once more for each of them,
// with the edited source in place of the shipped one; the test that the catalogue names must fail there, not
// here.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <string>

namespace starling::link {
namespace {

struct Planted {
  const char* name;
  const char* what;
  const char* test;
};
constexpr Planted kPlanted[] = {
#include "named_mutants.inc"
};

// 0: the test was run, and passed.
int status_of(const std::string& program, const char* test) {
  const std::string output = testing::TempDir() + "named_mutant_" + std::to_string(getpid());
  // Its report would be taken for that of the test's own run.
  const std::string command = "env -u GTEST_OUTPUT timeout 120 '" STARLING_TEST_BIN_DIR "/" + program +
                              "' --gtest_filter=" + test + " >'" + output +
                              "' 2>&1 && grep -q '  PASSED  . 1 test' '" + output + "'";
  const int status = std::system(command.c_str());
  std::remove(output.c_str());
  return status;
}

TEST(PlantedBugsOfNamedMessages, AreFound) {
  for (const Planted& bug : kPlanted) {
    SCOPED_TRACE(bug.name);
    EXPECT_EQ(status_of("link.named_test", bug.test), 0);
    const int status = status_of(std::string("named_mutants/") + bug.name, bug.test);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 1) << "not found: " << bug.what;
  }
}

}  // namespace
}  // namespace starling::link
