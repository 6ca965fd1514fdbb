// Hashes that host and device compute alike, also at compile time: names of lanes, signatures of operations,
// checksums of plans. Not for adversaries. The values are part of what ranks exchange: changing a function
// here changes the wire.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/portable.h"

namespace starling {

// splitmix64's finalizer (Stafford's variant 13): every input bit reaches every output bit; a bijection.
STARLING_HOST_DEVICE constexpr std::uint64_t mix64(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebull;
  x ^= x >> 31;
  return x;
}

// Order matters: combine(combine(0, a), b) differs from combine(combine(0, b), a).
STARLING_HOST_DEVICE constexpr std::uint64_t hash_combine(std::uint64_t seed, std::uint64_t value) {
  return mix64(seed * 0x9e3779b97f4a7c15ull + value + 0x632be59bd9b4e019ull);
}

// FNV-1a, 64 bits: byte by byte, for short texts.
STARLING_HOST_DEVICE constexpr std::uint64_t fnv1a64(const char* text, std::size_t bytes,
                                                     std::uint64_t seed = 0xcbf29ce484222325ull) {
  std::uint64_t hash = seed;
  for (std::size_t i = 0; i < bytes; ++i) {
    hash ^= static_cast<unsigned char>(text[i]);
    hash *= 0x100000001b3ull;
  }
  return hash;
}

constexpr std::uint64_t hash64(std::string_view text) { return mix64(fnv1a64(text.data(), text.size())); }

struct Hash128 {
  std::uint64_t high;
  std::uint64_t low;

  friend STARLING_HOST_DEVICE constexpr bool operator==(const Hash128& a, const Hash128& b) {
    return a.high == b.high && a.low == b.low;
  }
};

// Eight bytes at a time through two chained mixes, for identities (a plan's contents) where 64 bits could
// collide.
STARLING_HOST_DEVICE constexpr Hash128 hash128(const char* data, std::size_t bytes) {
  std::uint64_t low = 0x243f6a8885a308d3ull ^ bytes;
  std::uint64_t high = 0x13198a2e03707344ull;
  for (std::size_t at = 0; at < bytes; at += 8) {
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < 8 && at + i < bytes; ++i) {
      word |= static_cast<std::uint64_t>(static_cast<unsigned char>(data[at + i])) << (8 * i);
    }
    low = hash_combine(low, word);
    high = hash_combine(high, word ^ low);
  }
  return {mix64(high ^ low), mix64(low + (high << 1))};
}

constexpr Hash128 hash128(std::string_view text) { return hash128(text.data(), text.size()); }

}  // namespace starling
