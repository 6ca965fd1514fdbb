#include "comm/copy_proxy.h"

#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/room.h"
#include "base/thread.h"
#include "machine/cpu/futex.h"

namespace starling {
namespace {

// After so long without progress the thread naps between two looks: who waits for a stream that computes for
// milliseconds does not mind, and a core is free meanwhile.
constexpr uint64_t kEagerNs = 200'000;
constexpr long kProxyNapNs = 10'000;
constexpr uint32_t kLooksAYield = 16;

cpu::WaitPolicy no_waiting() { return {.spins = 1, .idle_spins = 1, .idle_yields = 1, .sleep_ns = 1}; }

}  // namespace

// The offer's fields are there: its word was acquired.
uint64_t CopyProxy::Engine::copy(const device::CopySend& send) {
  std::optional<CopyTarget> target = CopyTarget{send.to};
  if (send.offer != nullptr)
    target =
        static_cast<PeerMemory*>(send.peer)->reach(send.offer->address, uint16_t(send.offer->registration));
  if (!target) return 0;
  target->address += send.piece.offset;
  const uint64_t ticket = engine.copy(send.queue(), *target, send.from, send.bytes);
  if (ticket != 0) given[size_t(send.queue())] = ticket;
  return ticket;
}

CopyProxy::CopyProxy(std::unique_ptr<CopyEngine> engine, std::function<void()> told)
    : owned_(std::move(engine)),
      engine_{*owned_},
      machine_(0, no_waiting(), nullptr, nullptr),
      host_(machine_, engine_),
      told_(std::move(told)),
      thread_(start_thread("st-copies", [this] { run(); })) {}

CopyProxy::~CopyProxy() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void CopyProxy::make_room() {
  std::lock_guard lock(mutex_);
  for_one_more(added_);
  for_one_more(added_carried_);
}

void CopyProxy::add(device::CopyJob&& job) {
  {
    std::lock_guard lock(mutex_);
    added_.push_back(std::move(job));
  }
  changed_.notify_one();
}

void CopyProxy::add(CarriedCopyJob&& job) {
  {
    std::lock_guard lock(mutex_);
    added_carried_.push_back(std::move(job));
  }
  changed_.notify_one();
}

std::vector<CopyProxy::Report> CopyProxy::take() {
  std::lock_guard lock(mutex_);
  return std::exchange(reports_, {});
}

bool CopyProxy::needs_engine() {
  std::lock_guard lock(mutex_);
  return needed_ || !added_.empty() || !added_carried_.empty();
}

void CopyProxy::tell_need() {
  const auto needs = [](const device::CopyJob& job) { return job.needs_engine(); };
  // The receiver's last piece, too, is put into the queue when it has come.
  const bool need = !carried_.empty() || std::any_of(jobs_.begin(), jobs_.end(), needs);
  if (need == told_need_) return;
  std::lock_guard lock(mutex_);
  needed_ = told_need_ = need;
}

void CopyProxy::report(Report&& report) {
  std::lock_guard lock(mutex_);
  reports_.push_back(std::move(report));
}

// False: it ends. Sleeps while there is nothing to do.
bool CopyProxy::take_jobs() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] {
    return !jobs_.empty() || !carried_.empty() || !added_.empty() || !added_carried_.empty() || ending_;
  });
  for (device::CopyJob& job : added_) jobs_.push_back(std::move(job));
  for (CarriedCopyJob& job : added_carried_) carried_.push_back(std::move(job));
  needed_ = told_need_ = told_need_ || !added_.empty() || !added_carried_.empty();
  added_.clear();
  added_carried_.clear();
  return !ending_;
}

// True if anything went on.
template <class Job, class Step>
bool CopyProxy::step_each(std::vector<Job>& jobs, Step&& step, bool& reported) {
  bool progress = false;
  std::erase_if(jobs, [&](Job& job) {
    using Result = decltype(step(job));
    Result result = Result::kNothing;
    try {
      result = step(job);
    } catch (const Error& error) {
      job.failed = true;
      report({job.owner, job.sequence, false, error.what()});
      reported = true;
    }
    progress |= result != Result::kNothing;
    if (result != Result::kFinished) return false;
    report({job.owner, job.sequence, true, ""});
    return reported = true;
  });
  return progress;
}

// In the order in which they came: the copies of a lane go in its order. True if anything went on.
bool CopyProxy::step_all() {
  bool reported = false;
  if (abandoned_.load(std::memory_order_relaxed)) {
    jobs_.clear();
    carried_.clear();
  }
  bool progress = step_each(jobs_, [this](device::CopyJob& job) { return host_.step(job); }, reported);
  progress |= step_each(
      carried_, [this](CarriedCopyJob& job) { return step(job, engine_.engine, engine_.given[0]); },
      reported);
  tell_need();
  if (reported) told_();
  return progress || reported;
}

void CopyProxy::run() {
  prctl(PR_SET_TIMERSLACK, 1'000);  // a nap of 10 us takes 10, not 60
  uint64_t progressed_ns = 0;
  uint32_t fruitless = 0;
  while (take_jobs()) {
    const bool progress = step_all();
    const uint64_t now = cpu::monotonic_ns();
    if (progress || (jobs_.empty() && carried_.empty())) {
      progressed_ns = now;
      fruitless = 0;
    } else if (now - progressed_ns > kEagerNs) {
      const timespec nap{0, kProxyNapNs};
      nanosleep(&nap, nullptr);
    } else if (++fruitless % kLooksAYield == 0) {
      sched_yield();
    } else {
      cpu::relax();
    }
  }
  // Their buffers are about to be given back.
  while (has_copies_under_way() && !abandoned_.load(std::memory_order_relaxed)) sched_yield();
}

bool CopyProxy::has_copies_under_way() const {
  for (const device::CopyQueue queue : {device::CopyQueue::kPeers, device::CopyQueue::kOwn})
    if (engine_.completed(queue) < engine_.last(queue)) return true;
  return false;
}

}  // namespace starling
