// All schedules of the core in a small case. At every operation on shared memory, a move of data included,
// any block may run next; at every look at a budget or at the quit period it may have ended, as often as each
// block's allowance permits, and in any order, in fair rounds, whenever nothing else can happen. The host is
// a model: what the program submits up to a synchronization is one step, a synchronization comes at any time
// and ends when the daemon has left, and a daemon that leaves is launched again at once.
//
// Reductions, both exact: an operation on what no other block ever touches runs without a choice (an ample
// set of one; random executions say what that may be, and if it turns out wrong, everything starts again with
// what was learnt), and executions that meet in one state (shared memory, data and every fiber's stack) go on
// as one. Memory is sequentially consistent here. Happens-before is checked along the executions that are
// made, but two that meet with different clocks go on as one: weak memory is the campaigns' part.
#pragma once
#include <cstdint>
#include <string>

#include "machine/sim/simulation.h"

namespace starling::sim {

struct ExploreLimits {
  uint32_t expiries_per_fiber = 1;
  uint64_t states = 5'000'000;
  bool reduce = true;  // false: every operation is a choice
  uint64_t walks = 0;  // so many executions drawn by chance instead: for comparing
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
