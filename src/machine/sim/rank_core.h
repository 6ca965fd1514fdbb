// What every simulated rank is made of, whoever calls it: its daemon's memory, and the host's side of that.
//
//   application   the rank's program: submits, synchronizes, waits   \ under the host's lock
//   poller        completes, feeds lanes, does what the rank adds    /
//
// Who runs the daemon, and what programs can say, the ranks add: rank.h, replay_rank.h, stream_rank.h.
#pragma once
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "device/completion_queue.h"
#include "machine/sim/core.h"
#include "machine/sim/lane.h"
#include "machine/sim/machine.h"
#include "wire/daemon.h"

namespace starling::sim {

// The daemon's parameters, as the options say.
Scheduling scheduling_of(const Options& options);

class RankCore {
 public:
  RankCore() = default;
  RankCore(RankCore&&) noexcept = default;  // so that vectors of ranks move
  virtual ~RankCore() = default;

  DaemonMemory& daemon() { return *daemon_; }
  const DaemonMemory& daemon() const { return *daemon_; }
  uint64_t synchronizations() const { return synchronizations_; }

 protected:
  struct Setting {
    World* world;
    const Options* options;
    const Core* core;
    uint32_t index;
  };
  // Memory for tasks of `lanes` lanes with so many operations under way in all.
  void build_core(const Setting& setting, uint32_t lanes, uint64_t operations);
  // Where the daemon finds a lane: entered before it is open, while others run.
  void enter_lane(SimLane& lane);
  // Application and poller; `unit` is the writer that they are.
  void add_host_fibers(uint32_t unit);
  // Words of the daemon and its queues that have several writers; after all is built.
  void share_core_words();
  void begin_core() { host_clock_.assign(w_->memory.width(), 0); }

  // ---- what a rank adds --------------------------------------------------------------------------------
  virtual void application() = 0;
  // One round of the poller. True if anything was there.
  virtual bool poll_once() = 0;
  // Nothing is left to do, and the daemon was told to exit.
  virtual bool ended() = 0;
  virtual void end_fibers() = 0;
  virtual SimLane* lane_numbered(uint64_t number) = 0;  // null: not a member
  virtual Expected& expected_of(uint64_t lane) = 0;
  // An operation is complete and right; before the lane is fed.
  virtual void completed(SimLane& lane, uint64_t index, bool faulty) = 0;
  virtual Submission place(SimLane& lane) { return lane.place(o_->first_sequence); }
  // Under the lock: what else its holder knows.
  virtual void learn_more() {}

  // ---- under the lock ------------------------------------------------------------------------------------
  void lock();
  void unlock();
  void push(const Submission& submission);
  void flush();
  virtual void feed(SimLane& lane);
  // Takes what the completion queue has, checking each. True if there was any.
  bool take_completions();
  // Operation `index` is complete: checks it, and feeds the lane.
  void finish_operation(SimLane& lane, uint64_t index);
  // Tells the daemon to exit, once.
  void push_exit();

  [[noreturn]] void fail(const std::string& what) { w_->scheduler.fail(name() + ": " + what); }
  std::string name() const { return "rank " + std::to_string(index_); }
  uint64_t outstanding() const { return submitted_ - completed_; }
  // The address is of the daemon or its queues; else empty.
  std::string describe_core(const void* address) const;
  // What the daemon left behind. `whole`: no lane is broken.
  std::string core_leftovers(bool whole) const;
  std::string progress_text() const;

  World* w_ = nullptr;
  const Options* o_ = nullptr;
  const Core* core_ = nullptr;
  uint32_t index_ = 0;
  DaemonMemory* daemon_ = nullptr;
  device::CompletionMemory* completions_ = nullptr;
  std::byte* pool_ = nullptr;
  uint32_t app_fiber_ = 0, poller_fiber_ = 0;

  bool locked_ = false, lock_wanted_ = false;
  bool app_ended_ = false, exit_pushed_ = false;
  std::deque<Submission> unsubmitted_;  // found the ring full
  uint64_t submitted_ = 0, completed_ = 0;
  uint64_t synchronizations_ = 0;

 private:
  static void run_application(void* rank) { static_cast<RankCore*>(rank)->application(); }
  static void run_poller(void* rank) { static_cast<RankCore*>(rank)->poller(); }
  void make_queues();
  void make_block(uint32_t block, uint32_t lanes, uint64_t operations);
  void poller();
  void take(uint64_t token);

  std::vector<uint32_t> host_clock_;
};

}  // namespace starling::sim
