// One simulated rank of a program that submits from the CPU. Callbacks may submit; lanes connect late;
// operations that take too long break their lane.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "machine/sim/cluster.h"
#include "machine/sim/daemon_rank.h"
#include "machine/sim/lane_table.h"

namespace starling::sim {

class Rank final : public DaemonRank {
 public:
  // Memory; then fibers: both in the order of ranks, as the seed's choices depend on it.
  void build(Cluster& cluster, uint32_t index);
  void add_fibers();
  // When all ranks have theirs.
  void begin() { begin_daemon_rank(); }

  std::string describe(const void* address) const;
  // What is not as it should be after all fibers ended; empty: nothing.
  std::string leftovers() const;
  // Of all that the host's fibers share without the modelled memory.
  uint64_t host_hash() const;
  // Statistics are no part of a state.
  void forget_counters() const {
    for (uint32_t b = 0; b < daemon_->block_count; ++b) daemon_->blocks[b].counters = {};
  }
  // All that it called is complete.
  bool application_ended() const { return app_ended_; }
  // One line: what the rank was doing.
  std::string state() const;

 private:
  void make_trace();

  void application() override;
  void submit(uint32_t lane);
  void submit_locked(SimLane& lane);
  void wait_for_all();

  bool poll_once() override;
  bool ended() override;
  SimLane* lane_numbered(uint64_t number) override { return lanes_.at(number); }
  Expected& expected_of(uint64_t lane) override { return c_->expected[lane]; }
  void completed(SimLane& lane, uint64_t index, bool faulty) override;
  void fail_waiting(SimLane& lane);

  void run_thread(SimMachine& machine, Thread& thread) override;
  void explored_application();
  void explored_block(SimMachine& machine, Thread& thread);
  bool finished_by_core() const;

  Cluster* c_ = nullptr;
  LaneTable lanes_;
  std::vector<std::vector<TraceRecord>> trace_;
  std::vector<uint32_t> callbacks_;  // per lane: operations that the callback of the last one submits
  bool submitted_all_ = false;
  bool all_given_back_ = true;  // buffers of broken lanes
};

}  // namespace starling::sim
