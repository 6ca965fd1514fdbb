// All schedules of the core in a small case. At every operation on shared memory any block may run next; at
// every look at a budget or at the quit period it may have ended, as often as each block's allowance permits,
// and whenever nothing else can happen. No host runs: all is submitted before, and a daemon that leaves is
// launched again at once. What a device synchronization does to a daemon, it does by quitting at any such
// look.
//
// Reductions, both exact: an operation on a word that no other block ever touches runs without a choice (an
// ample set of one; if the assumption turns out wrong, everything starts again with what was learnt), and
// executions that meet in one state (the shared memory and every fiber's stack) go on as one. Memory is
// sequentially consistent here: weak memory and races are the campaigns' part.
#pragma once
#include <cstdint>
#include <string>

#include "machine/sim/simulation.h"

namespace starling::sim {

struct ExploreLimits {
  uint32_t expiries_per_fiber = 1;
  uint64_t states = 5'000'000;
};

struct Explored {
  uint64_t states = 0;  // distinct
  uint64_t executions = 0;  // that ended, or met a known state
  uint64_t completed = 0;  // that ended, all checks passed
  uint64_t transitions = 0;
  uint32_t restarts = 0;
  bool exhausted = false;  // all schedules were seen
  std::string failure;  // of the first execution that failed
};

// Options: one block and one thread; delays and injections are ignored.
Explored explore(Simulation& simulation, const Program& program, const Options& options,
                 const ExploreLimits& limits = {});

}  // namespace starling::sim
