// Goal: hashes are fixed for ever (they go over the wire), also at compile time, and spread.
// Method: published vectors, golden values, and counting collisions and flipped bits on structured inputs.
// sanitize: address (one thread)
#include "base/hash.h"

#include <gtest/gtest.h>

#include <bit>
#include <set>
#include <string>
#include <utility>

namespace starling {
namespace {

static_assert(fnv1a64("", 0) == 0xcbf29ce484222325ull);
static_assert(fnv1a64("a", 1) == 0xaf63dc4c8601ec8cull);  // FNV's published test vectors
static_assert(fnv1a64("foobar", 6) == 0x85944171f73967e8ull);
static_assert(mix64(0x9e3779b97f4a7c15ull) == 0xe220a8397b1dcdafull);  // splitmix64's first output for seed 0
static_assert(hash128("plan") == hash128("plan"));
static_assert(!(hash128("plan") == hash128("plam")));

// From an implementation in Python, with its unbounded integers.
TEST(Hash, GoldenValues) {
  EXPECT_EQ(hash64("lane"), 0xd494ac747cac60d2ull);
  EXPECT_EQ(hash_combine(1, 2), 0x30883360cc68d7b1ull);
  const Hash128 hash = hash128("starling plan, more than eight bytes");
  EXPECT_EQ(hash.high, 0x191a59505622c5d6ull);
  EXPECT_EQ(hash.low, 0x6ef24c9fd2b81059ull);
}

TEST(Hash, CombineDependsOnOrder) {
  EXPECT_NE(hash_combine(hash_combine(0, 1), 2), hash_combine(hash_combine(0, 2), 1));
}

TEST(Hash, LengthAndTrailingZeroesCount) {
  EXPECT_FALSE(hash128(std::string(8, '\0')) == hash128(std::string(9, '\0')));
  EXPECT_FALSE(hash128(std::string()) == hash128(std::string(1, '\0')));
}

TEST(Hash, ShortNamesDoNotCollide) {
  std::set<std::uint64_t> seen64;
  std::set<std::pair<std::uint64_t, std::uint64_t>> seen128;
  constexpr int kNames = 20000;
  for (int i = 0; i < kNames; ++i) {
    const std::string name = "bucket." + std::to_string(i);
    seen64.insert(hash64(name));
    const Hash128 hash = hash128(name);
    seen128.insert({hash.high, hash.low});
  }
  EXPECT_EQ(seen64.size(), static_cast<std::size_t>(kNames));
  EXPECT_EQ(seen128.size(), static_cast<std::size_t>(kNames));
}

TEST(Hash, OneFlippedBitFlipsAboutHalf) {
  std::string text = "the quick brown fox jumps over";
  const Hash128 before = hash128(text);
  double flipped = 0;
  const int bits = static_cast<int>(text.size()) * 8;
  for (int bit = 0; bit < bits; ++bit) {
    std::string changed = text;
    changed[static_cast<std::size_t>(bit / 8)] ^= static_cast<char>(1 << (bit % 8));
    const Hash128 after = hash128(changed);
    flipped += std::popcount(before.high ^ after.high) + std::popcount(before.low ^ after.low);
  }
  EXPECT_NEAR(flipped / bits, 64.0, 3.0);
}

}  // namespace
}  // namespace starling
