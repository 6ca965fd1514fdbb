#include "machine/cpu/executor.h"

#include <memory>

#include "base/thread.h"
#include "device/daemon_block.h"
#include "device/submission_queue.h"

namespace starling::cpu {
namespace {

constexpr uint64_t kRestartPeriodNs = 1'000'000;  // stuck tasks are tried again after so long without a ring
constexpr uint32_t kEagerSpins = 4000;  // some 100 us
constexpr uint32_t kEagerPasses = 400;  // the same
constexpr uint64_t kIdlePeriodNs = 500'000'000;  // bounds every sleep; rings end it sooner

}  // namespace

CpuExecutor::CpuExecutor(const ExecutorOptions& options) : options_(options) {
  try {
    for (uint32_t block = 0; block < options_.daemon->block_count; ++block)
      threads_.push_back(start_thread("st-block", [this, block] { run_block(block); }));
  } catch (...) {
    end_threads();
    throw;
  }
}

CpuExecutor::~CpuExecutor() { end_threads(); }

void CpuExecutor::end_threads() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    // Who is inside leaves at its next yield: pairs with the acquires of `drain` in Daemon.
    std::atomic_ref<uint64_t>(options_.daemon->drain).store(launch_, std::memory_order_release);
  }
  ring();
  for (std::thread& thread : threads_) thread.join();
}

void CpuExecutor::run_block(uint32_t block) {
  auto state = std::make_unique<device::BlockState>();
  uint64_t launch = 0;
  auto reason = LeaveReason::kIdle;
  while ((launch = wait_for_launch(block, launch, reason)) != 0) {
    reason = run_daemon(block, launch, *state, options_.waiting, nullptr);
    leave();
  }
}

LeaveReason CpuExecutor::run_daemon(uint32_t block, uint64_t launch, device::BlockState& state,
                                    const WaitPolicy& waiting, CompletionListener* listener) {
  // Acquire: pairs with the release in set_carrier().
  CpuMachine machine(block, waiting, &options_.arena->daemon, &options_.arena->host, listener,
                     carrier_.load(std::memory_order_acquire));
  const device::DaemonArguments arguments{options_.daemon, options_.completions, options_.completion_kind,
                                          launch, options_.pool_base};
  return device::run_daemon(machine, arguments, state);
}

// A caller that runs the daemon finds what was submitted by itself, unless it sleeps inside: nobody is
// launched for it.
void CpuExecutor::ring() {
  // The submission before, the look after; pairs with the fence in hand_over().
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (run_by_caller_.load(std::memory_order_relaxed))
    cpu::ring(&options_.arena->daemon);
  else
    cpu::ring_for_launch(&options_.arena->daemon);
}

bool CpuExecutor::run_here(CompletionListener& listener, bool eager) {
  uint64_t launch = 0;
  {
    std::lock_guard lock(mutex_);
    if (ending_ || options_.daemon->block_count != 1 || resident_ > 0) return false;
    if (!work_waits(0) && options_.daemon->blocks[0].task_count == 0) return false;
    launch = ++launch_;
    resident_ = 1;
    run_by_caller_ = true;
  }
  // The daemon's own thread sleeps on: we hear the rings meanwhile. Peers look at this word whenever they
  // store something for us: it is written only where it has to be.
  std::atomic_ref<uint64_t> sleepers(options_.arena->daemon.sleepers);
  if (sleepers.load(std::memory_order_relaxed) & kOutsideBit) sleepers.fetch_and(~kOutsideBit);
  device::BlockState state;
  WaitPolicy waiting = options_.waiting;
  if (eager) {
    waiting.spins = kEagerSpins;
    waiting.idle_spins = kEagerPasses;
  }
  run_daemon(0, launch, state, waiting, &listener);
  leave();
  hand_over();
  return true;
}

bool CpuExecutor::ask_to_leave() {
  {
    std::lock_guard lock(mutex_);
    if (resident_ == 0 || run_by_caller_ || options_.daemon->block_count != 1) return false;
    // Release: pairs with the acquires of `drain` in Daemon.
    std::atomic_ref<uint64_t>(options_.daemon->drain).store(launch_, std::memory_order_release);
  }
  ring();
  return true;
}

void CpuExecutor::end_early() {
  // Release: pairs with the acquires of `drain` in Daemon.
  std::atomic_ref<uint64_t>(options_.daemon->drain).store(launch_, std::memory_order_release);
}

void CpuExecutor::hand_over() {
  // We have left, then the look: what is submitted later launches the daemon. Pairs with the fence in ring().
  std::atomic_thread_fence(std::memory_order_seq_cst);
  bool work;
  {
    std::lock_guard lock(mutex_);
    work = resident_ == 0 && (work_waits(0) || options_.daemon->blocks[0].task_count > 0);
  }
  if (work) ring();
}

// A launch is wanted by new submissions; by stuck tasks, when somebody rang or the restart period passed (the
// event-driven start: completions lag submissions).
uint64_t CpuExecutor::wait_for_launch(uint32_t block, uint64_t last_launch, LeaveReason left) {
  // Blocks of a larger grid wake each other; they have places of their own at the door.
  Sleeper sleeper = options_.daemon->block_count == 1 ? Sleeper::outside(&options_.arena->daemon)
                                                      : Sleeper(&options_.arena->daemon, block);
  const bool again_at_once = left == LeaveReason::kResidency;
  bool tasks = false;
  for (bool rung = again_at_once;;) {
    {
      std::lock_guard lock(mutex_);
      if (ending_) return 0;
      if (!run_by_caller_ && launch_ > last_launch && resident_ > 0) return launch_;
      // Only who runs the block may know its queue; nobody does.
      if (resident_ == 0) tasks = options_.daemon->blocks[block].task_count > 0;
      if (resident_ == 0 && (work_waits(block) || (rung && tasks))) {
        ++launch_;
        resident_ = options_.daemon->block_count;
        last_launch = launch_;
        if (resident_ > 1) ring();
        return launch_;
      }
    }
    if (!sleeper.prepared()) {
      sleeper.expect_news(tasks);
      sleeper.prepare();
      rung = false;
      continue;
    }
    sleeper.sleep(tasks ? kRestartPeriodNs : kIdlePeriodNs);
    rung = true;
  }
}

bool CpuExecutor::work_waits(uint32_t block) const {
  CpuMachine machine(block, options_.waiting, nullptr, nullptr);
  return device::has_submissions(machine, options_.daemon->submissions,
                                 options_.daemon->blocks[block].submissions_read);
}

void CpuExecutor::leave() {
  std::lock_guard lock(mutex_);
  if (--resident_ > 0) return;
  run_by_caller_ = false;
  left_.notify_all();
}

void CpuExecutor::synchronize() {
  std::unique_lock lock(mutex_);
  const uint64_t target = launch_;
  left_.wait(lock, [&] { return launch_ > target || resident_ == 0; });
}

bool CpuExecutor::quiet() const {
  std::lock_guard lock(mutex_);
  if (resident_ > 0) return false;
  for (uint32_t block = 0; block < options_.daemon->block_count; ++block)
    if (work_waits(block)) return false;
  return true;
}

}  // namespace starling::cpu
