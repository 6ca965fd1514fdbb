// Goal: times in messages read as people write them. Method: those of timeouts, PyTorch's of half an hour
// among them. sanitize: address (one thread)
#include "base/seconds.h"

#include <gtest/gtest.h>

namespace starling {
namespace {

TEST(Seconds, AsPeopleWriteThem) {
  EXPECT_EQ(seconds(250'000'000), "0.25 s");
  EXPECT_EQ(seconds(3'000'000'000), "3 s");
  EXPECT_EQ(seconds(9'600'000'000), "9.6 s");
  EXPECT_EQ(seconds(1'800'000'000'000), "1800 s");
}

}  // namespace
}  // namespace starling
