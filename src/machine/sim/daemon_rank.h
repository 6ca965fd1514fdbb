// A rank whose host launches the daemon itself, as on the CPU machine: by a submission at once, by the poller
// when a daemon left work behind (DFCCL §4.4). A device synchronization returns when nothing is resident, and
// nothing is launched before it does (§2.3).
//
//   blocks   wait for a launch, run the core until it leaves, and say so
#pragma once
#include <cstdint>
#include <vector>

#include "machine/sim/rank_core.h"

namespace starling::sim {

class DaemonRank : public RankCore {
 public:
  uint64_t launches() const { return launch_; }

 protected:
  struct Thread {
    DaemonRank* rank;
    uint32_t block, thread, fiber;
    uint64_t launch;
  };

  void build_daemon_rank(const Setting& setting, uint32_t lanes, uint64_t operations);
  // After those of the host: one fiber a thread of each block.
  void add_block_fibers();
  void begin_daemon_rank();
  uint32_t first_unit() const { return index_ * (o_->blocks + 1); }

  void synchronize();
  void launch_if_wanted(bool at_once);
  void block_thread(Thread& thread);
  LeaveReason run_core(SimMachine& machine, const Thread& thread);
  void resume_blocks();

  bool ended() override;
  void end_fibers() override;
  void learn_more() override;
  // A thread has left the core; the last one of a residency has.
  virtual void thread_left(LeaveReason) {}
  virtual void all_left() {}
  virtual void run_thread(SimMachine& machine, Thread& thread);

  std::vector<BlockGroup> groups_;
  std::vector<Thread> threads_;
  std::vector<void*> block_states_;
  std::vector<uint32_t> device_clock_;
  uint64_t launch_ = 0;
  uint32_t resident_ = 0;  // threads inside the core, or on their way there
  bool synchronizing_ = false;
  bool exited_ = false, ending_ = false;
  uint64_t restart_at_ = 0;

 private:
  static void run_block(void* thread) {
    auto* t = static_cast<Thread*>(thread);
    t->rank->block_thread(*t);
  }
  struct Parked {
    uint32_t lane;
    uint64_t ends_hash;
  };

  void launch();
  void left(const Thread& thread, LeaveReason reason);
  void note_parked(uint32_t block);
  void check_parked(uint32_t block);

  std::vector<std::vector<Parked>> parked_;  // per block: what its last residency left
};

}  // namespace starling::sim
