// One rank of a replay: launches in the recorded order, synchronizes, and waits at the end. Nothing but the
// machine injects anything.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "machine/sim/daemon_rank.h"
#include "machine/sim/replay.h"

namespace starling::sim {

class ReplayRank final : public DaemonRank {
 public:
  // Memory; then fibers: both in the order of ranks, as the seed's choices depend on it.
  void build(ReplayCluster& cluster, uint32_t index);
  void add_fibers();
  // When all ranks have theirs.
  void begin() { begin_daemon_rank(); }

  // What is not as it should be after all fibers ended; empty: nothing.
  std::string leftovers() const;
  // One line: what the rank was doing.
  std::string state() const;
  void add_to(ReplayReport& report) const;

 private:
  struct Opened {  // a peer says that it has the lane now
    uint32_t lane;
    SimLane* by;
  };

  void build_lanes();
  void make_traces();
  SimLane* lane_numbered(uint64_t number) override;
  Expected& expected_of(uint64_t lane) override { return c_->expected[lane]; }

  void application() override;
  void pace();
  void submit(uint32_t lane);
  void open(SimLane& lane);

  bool poll_once() override;
  void completed(SimLane& lane, uint64_t index, bool faulty) override;
  void connect();

  void thread_left(LeaveReason reason) override;
  void all_left() override;
  void count_parks();

  ReplayCluster* c_ = nullptr;
  std::vector<SimLane> lanes_;  // that it is a member of, in the order of their numbers
  std::vector<std::unique_ptr<TraceRecord[]>> trace_;
  std::vector<uint64_t> trace_read_;  // records counted, per block
  std::deque<Opened> opened_;         // not connected yet
  LeaveReason reason_ = LeaveReason::kDrained;  // of the residency that is ending
  uint64_t stuck_quits_ = 0, idle_quits_ = 0, limited_quits_ = 0;
};

}  // namespace starling::sim
