// What every element of every buffer must be, computed from the meaning of the collective alone.
#pragma once
#include <cstdint>
#include <vector>

#include "machine/sim/program.h"

namespace starling::sim {

// One operation of one lane; `seed` differs between operations, so that stale bytes are wrong bytes.
struct Oracle {
  const LaneSpec* lane;
  const CallSpec* call;
  uint64_t seed;

  uint64_t group_bytes() const;
  uint64_t input_bytes(uint32_t rank) const;   // 0: no such buffer
  uint64_t output_bytes(uint32_t rank) const;

  // Whether it is known what the rank's output must be.
  bool knows(uint32_t rank) const;

  void fill_input(uint32_t rank, std::byte* to) const;
  void expected_output(uint32_t rank, std::byte* to) const;
  // The output is the same on every rank.
  bool same_everywhere() const { return call->plan->collective() == Collective::kAllReduce; }

 private:
  template <class T>
  void add_origins(uint32_t rank, T* out) const;
};

// An output that all ranks share, computed once.
struct Expected {
  uint64_t index = ~uint64_t(0);
  std::vector<std::byte> bytes;
};

}  // namespace starling::sim
