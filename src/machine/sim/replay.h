// Recorded orders of launches and device synchronizations, run by the shipped daemon on the simulator
// machine. A program may have as many lanes as a real job's (machine/sim/rank.h has 256): the hosts here do
// what a replay needs, and nothing that is injected.
#pragma once
#include <cstdint>
#include <vector>

#include "machine/sim/simulation.h"

namespace starling::sim {

struct ReplaySettings {
  Options machine;
  uint64_t pace_ns =
      0;  // a rank computes so long between two launches on average; 0: launches as fast as it can
};

struct ReplayReport {
  Report total;                 // quits without the last, which ends the program
  std::vector<uint32_t> parks;  // of each lane, on all ranks together
  uint64_t stuck_quits = 0;     // residencies that ended because no task could go on
  uint64_t idle_quits = 0;      // ... because there was no task
  uint64_t limited_quits = 0;   // ... at the residency limit, or drained
};

class ReplayRank;

// What ranks know of each other.
struct ReplayCluster {
  World* world;
  const ReplaySettings* settings;
  const Program* program;
  const Core* core;
  std::vector<ReplayRank>* ranks;
  std::vector<uint32_t> depth;                // per lane: operations a rank launches
  std::vector<std::vector<SimLane*>> lanes;   // lanes[lane][rank in lane]
  std::vector<std::vector<uint32_t>> mine;    // per rank: its lanes
  std::vector<Expected> expected;             // per lane
  std::vector<uint32_t> parks;                // per lane
  uint64_t completed = 0;
};

// Runs programs of kSubmit and kSynchronize steps; every rank ends by waiting for all that it launched. Used
// again for one sequence after the other: its memory stays. One thread at a time.
class Replay {
 public:
  explicit Replay(const Core& core = shipped_core());
  ~Replay();
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  ReplayReport run(const Program& program, const ReplaySettings& settings, uint64_t seed);

  PlanCache& plans() { return plans_; }

 private:
  void build();
  void check_end(Report& report) const;
  ReplayReport collect() const;

  const Core* core_;
  PlanCache plans_;
  World world_;
  ReplayCluster cluster_{};
  std::vector<ReplayRank> ranks_;
};

// The small all-reduce that stands for a collective of a recording: none completes before all members
// launched it.
LaneSpec recorded_lane(std::vector<uint32_t> ranks, const Options& machine, PlanCache& plans);

}  // namespace starling::sim
