// Runs a rank's daemon on CPU threads: one thread a block. What a kernel launch is on a GPU is here: the
// threads enter the daemon loop together, and a launch is over when all have left it (DFCCL §4.4).
#pragma once
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "device/daemon.h"
#include "machine/cpu/machine.h"
#include "wire/arena.h"
#include "wire/daemon.h"

namespace starling::cpu {

struct ExecutorOptions {
  DaemonMemory* daemon;
  device::CompletionMemory* completions;
  device::CompletionQueueKind completion_kind;
  std::byte* pool_base;
  ArenaHeader* arena;
  WaitPolicy waiting;
};

class Executor {
 public:
  explicit Executor(const ExecutorOptions& options);
  // An exiting submission must have been pushed, or the daemon be idle.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Returns when what was resident at the call is not any more. What quit may be launched again meanwhile.
  void synchronize();

  // Runs one residency of a one-block daemon on the calling thread, if nobody else runs it and there is work;
  // it ends early after end_early(). False: not possible, the daemon's own thread has to be rung for.
  // eager: every rank of the host has a core, so polling long before the core is offered to others is cheap.
  bool run_here(CompletionListener& listener, bool eager);
  // A waiting caller wants to run the daemon itself: its own thread is asked to leave. False: it is not
  // inside.
  bool ask_to_leave();
  // From within run_here: the caller has what it waited for.
  void end_early();

  bool resident() const;
  // Nobody is inside, and every block has read every submission: no block knows a lane that has no
  // operations.
  bool quiet() const;

 private:
  void run_block(uint32_t block);
  LeaveReason run_daemon(uint32_t block, uint64_t launch, device::BlockState& state,
                         const WaitPolicy& waiting, CompletionListener* listener);
  // The thread that waits outside is woken if there is something to do.
  void hand_over();
  // Waits outside the daemon until a launch; returns its number, 0 to end the thread.
  uint64_t wait_for_launch(uint32_t block, uint64_t last_launch, LeaveReason left);
  bool work_waits(uint32_t block) const;
  void leave();

  ExecutorOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable left_;
  uint64_t launch_ = 0;     // number of the current or last residency
  uint32_t resident_ = 0;   // blocks inside the daemon loop
  bool run_by_caller_ = false;  // the residency is that of run_here()
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace starling::cpu
