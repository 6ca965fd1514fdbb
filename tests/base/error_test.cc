// Goal: an Error carries code, what happened, remedy and place, and assertions die in release builds too.
// Method: construct, throw and die, and read the text that a person would read.
// sanitize: address (one thread)
#include "base/error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>
#include <string>

namespace starling {
namespace {

TEST(Error, TextNamesWhatRemedyCodeAndPlace) {
  const Error error(Code::mismatch, "rank 1 called broadcast", "call all_reduce on every rank");
  EXPECT_EQ(error.code(), Code::mismatch);
  EXPECT_EQ(error.happened(), "rank 1 called broadcast");
  EXPECT_EQ(error.remedy(), "call all_reduce on every rank");
  const std::string text = error.what();
  EXPECT_NE(text.find("rank 1 called broadcast; remedy: call all_reduce on every rank"), std::string::npos)
      << text;
  EXPECT_NE(text.find("mismatch"), std::string::npos) << text;
  EXPECT_NE(text.find("error_test.cc:"), std::string::npos) << text;
}

TEST(Error, PlaceStartsAtTheRootOfTheRepository) {
  EXPECT_EQ(Error(Code::internal, "x").where().rfind("tests/base/error_test.cc:", 0), 0u);
}

TEST(Error, WithoutRemedyTheTextHasNone) {
  EXPECT_EQ(std::string(Error(Code::timeout, "late").what()).find("remedy"), std::string::npos);
}

TEST(Error, SystemErrorTakesErrno) {
  errno = ENOENT;
  const Error error = system_error("cannot open the segment");
  EXPECT_EQ(error.code(), Code::system);
  EXPECT_EQ(error.happened(), "cannot open the segment: No such file or directory");
}

TEST(Error, EveryCodeHasItsOwnName) {
  std::set<std::string> names;
  for (int code = 0; code <= static_cast<int>(Code::exhausted); ++code) {
    names.insert(code_name(static_cast<Code>(code)));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(Code::exhausted) + 1);
  EXPECT_EQ(names.count("unknown"), 0u);
}

TEST(AssertDeathTest, IsLiveInThisBuild) {
  EXPECT_DEATH(STARLING_ASSERT(1 + 1 == 3, "arithmetic broke"), "error_test.cc:[0-9]+: .*arithmetic broke");
}

TEST(Assert, TrueConditionsPass) { STARLING_ASSERT(true, "never printed"); }

}  // namespace
}  // namespace starling
