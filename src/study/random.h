// Seeded randomness of the deadlock study: one independent generator per round, so that a round's events
// depend on the seed and the round's number alone, never on how many threads share the work.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/hash.h"

namespace starling::study {

inline constexpr std::int64_t kNever = std::int64_t{1} << 60;  // a gap that no list is long enough for

// xoshiro256** (Blackman and Vigna), its state filled by splitmix64.
class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t stream) {
    std::uint64_t state = hash_combine(seed, stream);
    for (std::uint64_t& word : state_) word = mix64(state += 0x9e3779b97f4a7c15ull);
  }

  std::uint64_t next() {
    const std::uint64_t result = rotate(state_[1] * 5, 7) * 9;
    const std::uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = rotate(state_[3], 45);
    return result;
  }

  // In [0, 1), 53 bits.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

  bool chance(double probability) { return uniform() < probability; }

  // Uniform in [0, bound). The bias of the multiplication is below bound / 2^64.
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(
        (static_cast<unsigned __int128>(next()) * static_cast<std::uint64_t>(bound)) >> 64);
  }

 private:
  static std::uint64_t rotate(std::uint64_t x, int bits) { return (x << bits) | (x >> (64 - bits)); }

  std::uint64_t state_[4];
};

// How many independent trials fail before the next success: one draw instead of one per trial.
class Gap {
 public:
  explicit Gap(double probability)
      : inverse_log_(probability > 0 ? 1.0 / std::log1p(-probability) : 0.0), possible_(probability > 0) {}

  std::int64_t draw(Random& random) const {
    if (!possible_) return kNever;
    const double gap = std::log(1.0 - random.uniform()) * inverse_log_;  // probability 1: inverse_log_ is -0
    return gap < static_cast<double>(kNever) ? static_cast<std::int64_t>(gap) : kNever;
  }

 private:
  double inverse_log_;
  bool possible_;
};

}  // namespace starling::study
