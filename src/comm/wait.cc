// The context's part for threads that wait: they run the daemon themselves, or it is rung after all.
#include <sched.h>

#include "comm/context.h"

namespace starling {
namespace {

constexpr uint64_t kPollerBit = 1;                  // the poller's place at the host's doorbell
constexpr uint32_t kWaiterLooks = 200;            // before a waiter sleeps
constexpr uint64_t kWaiterLooksNs = 1'000'000;  // the same where completions do not ring
constexpr uint64_t kSpinNs = 30'000;  // of these, without letting others run, where all ranks have cores
constexpr int kWordLooks =
    16;  // at an operation's own word, between two looks at all there is to do: some 0.7 us
constexpr uint64_t kJustNowNs = 100'000;
constexpr uint64_t kLingerNs = 50'000;  // what handing the daemon over costs, about

// If the operation ends while its waiter is here, the waiter runs the callback: no other thread is woken.
class CallbackClaim {
 public:
  explicit CallbackClaim(const Request& request) : request_(request), claimed_(request.claim_callback()) {}
  ~CallbackClaim() {
    if (claimed_ && request_.keeps_callback()) request_.run_callback();
  }
  CallbackClaim(const CallbackClaim&) = delete;
  CallbackClaim& operator=(const CallbackClaim&) = delete;

 private:
  const Request& request_;
  const bool claimed_;
};

// Of an operation that has a word of its own: soon after that is stored it is seen. False: not now.
bool look_at_word(const Request& request) {
  uint64_t* const word = request.word();
  if (word == nullptr) return false;
  for (int k = 0; k < kWordLooks; ++k, cpu::relax())
    if (request.is_told(word)) return true;
  return false;
}

}  // namespace

// Ends the residency on the caller's thread once the caller's request is done. Others that it will wait for
// next go on here as long as they can: the daemon's thread would be woken for nothing.
class Context::Waiter final : public CompletionListener {
 public:
  Waiter(Context& context, const Request& request) : context_(context), request_(request) {}
  void look(bool idle) override {
    context_.poll_once();
    if (!request_.done()) return;
    if (!others() || (idle && lingered())) context_.executor_->end_early();
  }

 private:
  // Will our caller wait for others next? Perhaps, if it has submitted them just now.
  bool others() const {
    if (context_.waited_ > 0) return true;
    return context_.perhaps_waited_ > 0 && cpu::monotonic_ns() - context_.perhaps_since_ns_ < kJustNowNs;
  }
  bool lingered() {
    if (done_at_ == 0) done_at_ = cpu::monotonic_ns();
    return cpu::monotonic_ns() - done_at_ > kLingerNs;
  }

  uint64_t done_at_ = 0;
  Context& context_;
  const Request& request_;
};

// Where completions do not ring, the poller has to be told that there are some to look for.
void Context::wake_poller() {
  if (!place_->traits().notifies) cpu::ring(&arena_->header()->host);
}

bool Context::wait(const Request& request, int64_t timeout_ns) {
  if (request.done()) return true;
  const CallbackClaim claim(request);
  return await(request, timeout_ns);
}

bool Context::await(const Request& request, int64_t timeout_ns) {
  std::atomic_ref<uint64_t> sleepers(arena_->header()->host.sleepers);
  // While we look ourselves, nobody needs to wake the poller. Mostly it is so already, and the word lies
  // where peers look for sleepers: a line that is not written stays in their caches.
  // But for hooks, which we do not call: who rings for those has to find the poller.
  if (sleepers.load(std::memory_order_relaxed) & kPollerBit && !any_unmatched())
    sleepers.fetch_and(~kPollerBit);
  ++waiters_;
  const bool timed = timeout_ns >= 0 || !place_->traits().notifies;
  const uint64_t start = timed ? cpu::monotonic_ns() : 0;
  const auto passed = [&] { return cpu::monotonic_ns() - start; };
  Waiter waiter(*this, request);
  const bool eager = ranks_on_host_.load(std::memory_order_relaxed) <= cores_;
  bool asked = false;
  for (uint32_t look = 0; !request.done(); ++look) {
    if (timeout_ns >= 0 && passed() >= uint64_t(timeout_ns)) break;
    if (place_->traits().notifies ? look >= kWaiterLooks : passed() >= kWaiterLooksNs) break;
    if (look_at_word(request) && poll_once()) continue;
    late_start_.take_over();
    const bool ran = executor_->run_here(waiter, eager);
    if (ran) {
      if (!request.done()) poll_once();
      continue;
    }
    if (asked || !executor_->ask_to_leave()) executor_->ring();  // it was not rung for us at the submission
    asked = true;
    // A yield takes as long as a look does.
    const bool spins = eager && !place_->traits().notifies && passed() < kSpinNs;
    if (!poll_once() && !spins) sched_yield();
  }
  --waiters_;
  // What others submitted before our bit was away is counted by now; what comes later sets the bit itself.
  if (request.done() && !poller_needed()) return true;
  sleepers.fetch_or(kPollerBit);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  {
    // What was published before the poller's bit was there. Not poll_once(): whoever has the lock may not
    // look.
    const std::lock_guard lock(mutex_);
    look(false);
  }
  if (any_unmatched()) cpu::ring(&arena_->header()->host);  // whoever rang while the bit was away
  if (request.done()) return true;
  executor_->ring();
  wake_poller();
  if (timeout_ns < 0) return request.wait(-1);
  return request.wait(passed() < uint64_t(timeout_ns) ? int64_t(uint64_t(timeout_ns) - passed()) : 0);
}

// A waiter did the poller's work, and will not for what comes now. Before it comes: the daemon may have
// completed it before we go on, and rings for whom it sees.
void Context::expect_rings() {
  std::atomic_ref<uint64_t>(arena_->header()->host.sleepers).fetch_or(kPollerBit);
}

void Context::show_poller() {
  expect_rings();
  wake_poller();
}

// Nobody has waited for what was submitted.
void Context::start_late() {
  show_poller();
  executor_->ring();
  // A daemon that was still there has perhaps completed it before our bit was there: the poller looks.
  cpu::ring(&arena_->header()->host);
}

}  // namespace starling
