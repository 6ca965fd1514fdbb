// Goal: a log line says level and rank, is cut off below the level, and lines of many threads never mix.
// Method: stderr goes to a pipe-backed capture of GoogleTest; threads write long lines and all must come back
// whole.
#include "base/log.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace starling {
namespace {

TEST(Log, LineNamesLevelAndRank) {
  testing::internal::CaptureStderr();
  log_rank(LogLevel::error, 3, "lost ", 2, " peers");
  log(LogLevel::error, "no rank");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "starling[rank 3] error: lost 2 peers\nstarling error: no rank\n");
}

TEST(Log, BelowTheLevelNothingIsWritten) {
  if (log_enabled(LogLevel::trace)) GTEST_SKIP() << "STARLING_LOG=trace is set";
  testing::internal::CaptureStderr();
  log(LogLevel::trace, "hidden");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Log, LinesOfThreadsStayWhole) {
  constexpr int kThreads = 4;
  constexpr int kLines = 50;
  const std::string body(200, 'x');
  testing::internal::CaptureStderr();
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < kThreads; ++rank) {
      threads.emplace_back([rank, &body] {
        for (int i = 0; i < kLines; ++i) log_rank(LogLevel::error, rank, body);
      });
    }
  }
  std::istringstream lines(testing::internal::GetCapturedStderr());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_EQ(line.substr(0, 14), "starling[rank ") << line;
    EXPECT_EQ(line.size(), std::string("starling[rank 0] error: ").size() + body.size());
  }
  EXPECT_EQ(count, kThreads * kLines);
}

}  // namespace
}  // namespace starling
