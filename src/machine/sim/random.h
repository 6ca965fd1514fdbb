// The only source of choice in the simulator: a counter under a seed, so that a seed is a whole execution.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "base/hash.h"

namespace starling::sim {

class Random {
 public:
  explicit Random(uint64_t seed = 0, uint64_t stream = 0) : key_(hash_combine(seed, stream)) {}

  uint64_t next() { return mix64(key_ + ++count_ * 0x9e3779b97f4a7c15ull); }

  // Uniform in [0, bound); bound 0: 0.
  uint32_t below(uint32_t bound) { return uint32_t((next() >> 32) * bound >> 32); }
  uint64_t between(uint64_t first, uint64_t last) {
    return first + uint64_t((static_cast<unsigned __int128>(next()) * (last - first + 1)) >> 64);
  }
  // `chance` in 65536.
  bool chance(uint32_t chance) { return chance != 0 && (next() >> 48) < chance; }

  // Many small values, few large ones, up to `largest`: delays of machines look like that.
  uint64_t skewed(uint64_t largest) {
    const uint64_t bits = next();
    return (largest >> (bits & 7)) * ((bits >> 32) & 0xffff) >> 16;
  }

 private:
  uint64_t key_;
  uint64_t count_ = 0;
};

template <class T>
void shuffle(std::vector<T>& items, Random& random) {
  for (size_t k = items.size(); k > 1; --k) std::swap(items[k - 1], items[random.below(uint32_t(k))]);
}

}  // namespace starling::sim
