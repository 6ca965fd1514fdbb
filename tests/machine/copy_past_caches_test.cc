// Goal: a copy past the caches copies, whatever the alignment and length, and nothing beside. Method: all
// alignments of both sides within a cache line, lengths around whole lines, and bytes around them that stay.
// sanitize: address (one thread)
#include "machine/cpu/copy_past_caches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace starling::cpu {
namespace {

TEST(CopyPastCaches, CopiesWhatItIsToldAndNothingElse) {
  constexpr uint64_t kRoom = 1024;
  std::vector<std::byte> from(kRoom), to(kRoom), expected(kRoom);
  for (uint64_t i = 0; i < kRoom; ++i) from[i] = std::byte(uint8_t(i * 7 + i / 256));
  for (uint64_t target = 0; target < 64; ++target) {
    for (const uint64_t source : {uint64_t(0), uint64_t(1), uint64_t(16), uint64_t(63)}) {
      for (const uint64_t bytes : {0, 1, 15, 63, 64, 65, 127, 128, 191, 200, 640}) {
        std::fill(to.begin(), to.end(), std::byte{0xee});
        expected = to;
        std::memcpy(&expected[target], &from[source], bytes);
        copy_past_caches(&to[target], &from[source], bytes);
        ASSERT_EQ(to, expected) << target << " " << source << " " << bytes;
      }
    }
  }
}

}  // namespace
}  // namespace starling::cpu
