// Runs a rank's daemon on CPU threads: one thread a block. What a kernel launch is on a GPU is here: the
// threads enter the daemon loop together, and a launch is over when all have left it (DFCCL §4.4).
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "device/daemon.h"
#include "machine/cpu/machine.h"
#include "machine/place.h"
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

class CpuExecutor final : public Executor {
 public:
  explicit CpuExecutor(const ExecutorOptions& options);
  // An exiting submission must have been pushed, or the daemon be idle.
  ~CpuExecutor() override;
  CpuExecutor(const CpuExecutor&) = delete;
  CpuExecutor& operator=(const CpuExecutor&) = delete;

  void ring() override;
  bool keep_running(bool, bool) override {
    return false;
  }  // the threads outside the daemon hear the rings themselves
  // For a one-block daemon, if nobody else runs it.
  bool run_here(CompletionListener& listener, bool eager) override;
  bool ask_to_leave() override;
  void end_early() override;
  void set_carrier(Carrier* carrier) override {
    // Release: the carrier, which was made before; pairs with the acquire in run_daemon().
    carrier_.store(carrier, std::memory_order_release);
  }
  // What quit may be launched again meanwhile.
  void synchronize() override;
  bool quiet() const override;
  std::string failure() const override { return ""; }

 private:
  void run_block(uint32_t block);
  LeaveReason run_daemon(uint32_t block, uint64_t launch, device::BlockState& state,
                         const WaitPolicy& waiting, CompletionListener* listener);
  // After leave(): the thread that waits outside is woken if there is something to do.
  void hand_over();
  // Waits outside the daemon until a launch; returns its number, 0 to end the thread.
  uint64_t wait_for_launch(uint32_t block, uint64_t last_launch, LeaveReason left);
  bool work_waits(uint32_t block) const;
  void leave();
  void end_threads();

  ExecutorOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable left_;
  uint64_t launch_ = 0;     // number of the current or last residency
  uint32_t resident_ = 0;   // blocks inside the daemon loop
  // The residency is that of run_here(). Written under the lock; ring() reads it without.
  std::atomic<bool> run_by_caller_{false};
  std::atomic<Carrier*> carrier_{nullptr};
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace starling::cpu
