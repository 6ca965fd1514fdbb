// One simulated rank: its daemon's memory, and its host side (application, poller, launches) as fibers.
//
//   application   submits, synchronizes, waits        \ under the host's lock
//   poller        completes, connects, launches again /
//   blocks        wait for a launch, then run the core until it leaves
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "device/completion_queue.h"
#include "machine/sim/core.h"
#include "machine/sim/lane.h"
#include "machine/sim/machine.h"
#include "machine/sim/program.h"
#include "wire/daemon.h"

namespace starling::sim {

class Rank;

// The daemon's parameters, as the options say.
Scheduling scheduling_of(const Options& options);

// What ranks know of each other.
struct Cluster {
  World* world;
  const Options* options;
  const Program* program;
  const Core* core;
  std::vector<Rank>* ranks;
  // lanes[lane][rank in lane]
  std::vector<std::vector<SimLane*>> lanes;
  std::vector<uint64_t> completed;  // operations checked, per lane: all ranks together
  std::vector<Expected> expected;   // per lane: the last one computed that is the same on all ranks
};

class Rank {
 public:
  // Memory; then fibers: both in the order of ranks, as the seed's choices depend on it.
  void build(Cluster& cluster, uint32_t index);
  void add_fibers();
  // When all ranks have theirs.
  void begin();

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

  DaemonMemory& daemon() { return *daemon_; }
  const DaemonMemory& daemon() const { return *daemon_; }
  uint64_t launches() const { return launch_; }
  uint64_t synchronizations() const { return synchronizations_; }

 private:
  struct Thread {
    Rank* rank;
    uint32_t block, thread, fiber;
    uint64_t launch;
  };

  static void run_application(void* rank) { static_cast<Rank*>(rank)->application(); }
  static void run_poller(void* rank) { static_cast<Rank*>(rank)->poller(); }
  static void run_thread(void* thread) {
    auto* t = static_cast<Thread*>(thread);
    t->rank->block_thread(*t);
  }

  void forget();

  void application();
  void submit(uint32_t lane);
  void submit_locked(SimLane& lane);
  void synchronize();
  void wait_for_all();

  void poller();
  bool poll_once();
  bool drain_completions();
  void completed(uint64_t token);
  void connect();
  void check_timeouts();
  void break_lane(SimLane& lane);
  void fail_waiting(SimLane& lane);
  bool ended();

  void feed(SimLane& lane);
  void flush();
  void launch_if_wanted(bool at_once);
  void launch();
  void block_thread(Thread& thread);
  void left(const Thread& thread, LeaveReason reason);

  void explored_application();
  void explored_block(SimMachine& machine, Thread& thread);
  void resume_blocks();
  bool finished_by_core() const;

  void lock();
  void unlock();
  uint64_t outstanding() const { return submitted_ - completed_; }

  Cluster* c_ = nullptr;
  World* w_ = nullptr;
  uint32_t index_ = 0;
  DaemonMemory* daemon_ = nullptr;
  device::CompletionMemory* completions_ = nullptr;
  std::byte* pool_ = nullptr;
  std::vector<SimLane> lanes_;                // of this rank
  std::vector<SimLane*> lane_of_;             // by number of the lane; null: not a member
  std::vector<BlockGroup> groups_;
  std::vector<Thread> threads_;
  std::vector<void*> block_states_;
  std::vector<std::vector<TraceRecord>> trace_;
  uint32_t app_fiber_ = 0, poller_fiber_ = 0;

  bool locked_ = false, lock_wanted_ = false;
  std::vector<uint32_t> host_clock_;
  std::vector<uint32_t> device_clock_;
  std::deque<Submission> unsubmitted_;        // found the ring full
  std::vector<uint32_t> callbacks_;  // per lane: operations that the callback of the last one submits
  std::vector<uint64_t> connect_after_;  // per lane
  uint64_t submitted_ = 0, completed_ = 0;
  uint64_t launch_ = 0;
  uint32_t resident_ = 0;  // threads inside the core, or on their way there
  bool synchronizing_ = false;
  bool submitted_all_ = false;
  bool app_ended_ = false, exit_pushed_ = false, exited_ = false, ending_ = false;
  uint64_t restart_at_ = 0;
  uint64_t synchronizations_ = 0;
};

}  // namespace starling::sim
