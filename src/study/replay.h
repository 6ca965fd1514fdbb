// Events that deadlock the model, given to the real scheduler: every GPU is a rank of the simulator machine
// with the shipped daemon (src/device), launches are submissions of its application, synchronizations are the
// device's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "machine/sim/replay.h"
#include "study/program.h"

namespace starling::study {

struct ReplayChoice {
  std::uint64_t seed = 1;  // of the machine's schedule
  bool wild = false;  // everything the simulator can draw: slow fibers, late stores, forced parks, ...
  bool checks = true;  // happens-before and races; too much memory for whole rounds
  bool yielding = true;  // false: what the collectives of other libraries do
  std::uint64_t pace_ns = 0;  // between two launches of a GPU, on average
};

struct Replayed {
  std::string failure;  // empty: all collectives completed, with the right bytes
  bool hangs = false;  // nothing went on any more; else a failure is a wrong result or a broken check
  std::string state;  // of every rank then
  std::int64_t launches = 0;  // completed: collectives times members
  std::int64_t synchronizations = 0;
  std::vector<std::uint32_t> parks;  // preemptions of each lane, on all its ranks
  std::int64_t stuck_quits =
      0;  // daemons left because no collective could go on: what lets a synchronization end
  std::int64_t idle_quits = 0;  // because there was none
  std::int64_t limited_quits = 0;
  std::int64_t daemon_launches = 0;
  double virtual_us = 0;
  std::int64_t steps = 0;
};

// For one program after the other; not by two threads at once.
class Replayer {
 public:
  // lane_of[c] is the lane of collective c: its collectives are launched in ascending order by every member.
  // Empty: each is a lane of its own. Throws Error for a program that judge() refuses.
  Replayed run(const Program& program, const std::vector<int>& lane_of, const ReplayChoice& choice);

 private:
  sim::Replay replay_;
};

}  // namespace starling::study
