// One rank of a replay: its daemon's memory, and its host side as fibers, as in machine/sim/rank.h.
//
//   application   launches in the recorded order, synchronizes, waits at the end   \ under the host's lock
//   poller        completes, connects lanes, launches the daemon again             /
//   blocks        wait for a launch of the daemon, then run the core until it leaves
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "device/completion_queue.h"
#include "machine/sim/replay.h"
#include "wire/daemon.h"

namespace starling::sim {

class ReplayRank {
 public:
  ReplayRank() = default;
  ReplayRank(ReplayRank&&) noexcept = default;  // so that a vector of them moves

  // Memory; then fibers: both in the order of ranks, as the seed's choices depend on it.
  void build(ReplayCluster& cluster, uint32_t index);
  void add_fibers();
  // When all ranks have theirs.
  void begin();

  // What is not as it should be after all fibers ended; empty: nothing.
  std::string leftovers() const;
  // One line: what the rank was doing.
  std::string state() const;
  void add_to(ReplayReport& report) const;

 private:
  struct Thread {
    ReplayRank* rank;
    uint32_t block, thread, fiber;
    uint64_t launch;
  };
  struct Opened {  // a peer says that it has the lane now
    uint32_t lane;
    SimLane* by;
  };

  static void run_application(void* rank) { static_cast<ReplayRank*>(rank)->application(); }
  static void run_poller(void* rank) { static_cast<ReplayRank*>(rank)->poller(); }
  static void run_thread(void* thread) {
    auto* t = static_cast<Thread*>(thread);
    t->rank->block_thread(*t);
  }

  void build_daemon();
  void build_lanes();
  SimLane* find(uint32_t lane);

  void application();
  void pace();
  void submit(uint32_t lane);
  void open(SimLane& lane);
  void synchronize();

  void poller();
  bool poll_once();
  bool drain_completions();
  void completed(uint64_t token);
  void connect();
  bool ended();

  void feed(SimLane& lane);
  void flush();
  void launch_if_wanted(bool at_once);
  void launch();
  void block_thread(Thread& thread);
  void left(const Thread& thread, LeaveReason reason);
  void count_parks();

  void lock();
  void unlock();
  uint64_t outstanding() const { return submitted_ - completed_; }

  ReplayCluster* c_ = nullptr;
  World* w_ = nullptr;
  uint32_t index_ = 0;
  DaemonMemory* daemon_ = nullptr;
  device::CompletionMemory* completions_ = nullptr;
  std::byte* pool_ = nullptr;
  std::vector<SimLane> lanes_;          // that it is a member of, in the order of their numbers
  std::vector<BlockGroup> groups_;
  std::vector<Thread> threads_;
  std::vector<void*> block_states_;
  std::vector<std::unique_ptr<TraceRecord[]>> trace_;
  std::vector<uint64_t> trace_read_;    // records counted, per block
  uint32_t app_fiber_ = 0, poller_fiber_ = 0;

  bool locked_ = false;
  std::vector<uint32_t> host_clock_, device_clock_;
  std::deque<Submission> unsubmitted_;  // found the ring full
  std::deque<Opened> opened_;           // not connected yet
  uint64_t submitted_ = 0, completed_ = 0;
  uint64_t launch_ = 0;
  uint32_t resident_ = 0;               // threads inside the core, or on their way there
  bool synchronizing_ = false;
  bool app_ended_ = false, exit_pushed_ = false, exited_ = false, ending_ = false;
  LeaveReason reason_ = LeaveReason::kDrained;  // of the residency that is ending
  uint64_t restart_at_ = 0;
  uint64_t synchronizations_ = 0;
  uint64_t stuck_quits_ = 0, idle_quits_ = 0, limited_quits_ = 0;
};

}  // namespace starling::sim
