// One execution of one program on one simulated machine under one seed, with every check on.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "machine/sim/cluster.h"
#include "machine/sim/core.h"
#include "machine/sim/options.h"
#include "machine/sim/program.h"
#include "machine/sim/rank.h"
#include "machine/sim/stream_rank.h"

namespace starling::sim {

struct Report {
  std::string failure;       // empty: all was right
  std::string state;         // of every rank when it failed
  uint64_t virtual_ns = 0;
  uint64_t slices = 0;       // scheduling decisions
  uint64_t operations = 0;   // results checked
  uint64_t instructions = 0;
  uint64_t parks = 0;
  uint64_t saves = 0;
  uint64_t quits = 0;        // residencies that ended before the exit
  uint64_t launches = 0;
  uint64_t synchronizations = 0;
  uint64_t started_as_kernel = 0;  // operations that began as a kernel of their own ...
  uint64_t taken_by_kernel = 0;  // ... or in one that had stayed, counted above too
  uint64_t replayed = 0;  // of them, by graphs
  uint64_t carried = 0;  // messages between hosts
  uint64_t copied = 0;  // operations by copy engines, complete

  bool ok() const { return failure.empty(); }
  void add(const Report& other);
};

// Used again for seed after seed: its memory stays. One thread at a time.
class Simulation {
 public:
  explicit Simulation(const Core& core = shipped_core());
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  Report run(const Program& program, const Options& options, uint64_t seed);

  PlanCache& plans() { return plans_; }

  // The two halves of run(), for who chooses the schedule himself (explore.h).
  void prepare(const Program& program, const Options& options, uint64_t seed);
  Report finish();
  void connect_all();
  World& world() { return world_; }
  const std::vector<Rank>& ranks() const { return ranks_; }

  // What blocks did in the last run, in order of time; needs Options::trace_capacity.
  struct TracedEvent {
    TraceRecord record;
    uint32_t rank;
    uint32_t block;
  };
  std::vector<TracedEvent> trace() const;

 private:
  static void run_reaper(void* simulation);
  void build();
  void build_streams();
  void check_end(Report& report);
  void collect(Report& report) const;

  const Core* core_;
  PlanCache plans_;
  World world_;
  Cluster cluster_{};
  std::vector<Rank> ranks_;  // one of the two, as the program asks
  std::vector<std::unique_ptr<StreamRank>> stream_ranks_;
};

}  // namespace starling::sim
