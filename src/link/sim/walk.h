// What explore.h is too slow for: longer flows, more faults, three paths, by chance under a seed. The seed
// draws the flow, and every action; when the faults are spent, the flow must come to its end.
#pragma once
#include <cstdint>
#include <string>

#include "link/sim/network.h"

namespace starling::link::sim {

FlowSetup draw_setup(uint64_t seed);

struct Walked {
  uint64_t steps = 0;
  uint32_t epochs = 0;  // that were begun after the first
  uint32_t died = 0;    // 1: an end did
  std::string failure;  // and the last actions before it
};

Walked walk(uint64_t seed, const FlowCore& core);

}  // namespace starling::link::sim
