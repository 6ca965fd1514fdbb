// Everything that can happen to a small flow (network.h), each state once. Beside what is checked on every
// step, each state must lead to the end when nothing goes wrong any more: the certain actions in turn, then
// timers in turn, and a path that heals if none works. A path that is broken stays silent in that, which is
// the worst it can do.
//
// States are told apart by 64 bits of hash: two of ten million meet with a chance of one in 10^5, and then a
// part of the states stays unseen.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "link/sim/network.h"

namespace starling::link::sim {

struct Explored {
  uint64_t states = 0;
  uint64_t transitions = 0;
  uint64_t ends = 0;       // states in which all is over
  uint32_t most_epochs = 0;
  uint32_t deepest = 0;
  bool exhausted = false;  // nothing is left to see
  std::string failure;     // what was wrong first, and the actions that lead there
};

Explored explore(const FlowSetup& setup, const FlowCore& core, uint64_t state_limit);

}  // namespace starling::link::sim
