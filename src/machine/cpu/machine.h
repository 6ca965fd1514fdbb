// The cpu machine: a block is one thread. Waiting is spin, then yield the core, then sleep at the doorbell,
// so that more ranks than cores behave.
#pragma once
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "device/machine.h"
#include "machine/carrier.h"
#include "machine/completion_listener.h"
#include "machine/cpu/copy_past_caches.h"
#include "machine/cpu/doorbell.h"
#include "machine/cpu/process_memory.h"
#include "wire/lane.h"

namespace starling::cpu {

// How a thread waits. Chosen once per context from cores and ranks (machine/cpu/executor.cc).
struct WaitPolicy {
  uint32_t spins;          // polls with a pause instruction before the core is offered to others
  uint32_t idle_spins;     // the same, in passes over the queue
  uint32_t idle_yields;    // passes that yield the core before the thread sleeps
  uint64_t sleep_ns;       // longest sleep: bounds what a lost peer can delay (quit period)
};

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

class CpuMachine {
 public:
  static constexpr uint32_t kThreads = 1;
  static constexpr bool kVectorThreads = false;
  static constexpr bool kReadsOwned = true;
  static constexpr bool kOpensPeers = false;
  static constexpr bool kTakesTurns = true;
  static constexpr bool kStagesPlans = false;
  static constexpr bool kPlainWrites = true;
  static constexpr uint32_t kLaneDepth = starling::kLaneDepth;

  // listener: null, or who is called instead of ringing at the host's door. carrier: null, or whom this
  // thread helps while it waits.
  CpuMachine(uint32_t block, const WaitPolicy& policy, Doorbell* daemon_bell, Doorbell* host_bell,
             CompletionListener* listener = nullptr, Carrier* carrier = nullptr)
      : block_(block),
        policy_(policy),
        host_bell_(host_bell),
        listener_(listener),
        carrier_(carrier),
        sleeper_(daemon_bell, block) {
    // Who waits for its own operation sends what it posts itself, too.
    if (carrier_ != nullptr && listener_ != nullptr) help();
  }
  ~CpuMachine() {
    busy();
    stop_helping();
  }
  CpuMachine(const CpuMachine&) = delete;
  CpuMachine& operator=(const CpuMachine&) = delete;

  uint32_t thread_index() const { return 0; }
  uint32_t thread_count() const { return 1; }
  uint32_t block_index() const { return block_; }

  uint64_t load_acquire(const uint64_t* p) const { return ref(p).load(std::memory_order_acquire); }
  uint64_t load_relaxed(const uint64_t* p) const { return ref(p).load(std::memory_order_relaxed); }
  void store_release(uint64_t* p, uint64_t v) { ref(p).store(v, std::memory_order_release); }
  void store_relaxed(uint64_t* p, uint64_t v) { ref(p).store(v, std::memory_order_relaxed); }
  uint64_t fetch_add(uint64_t* p, uint64_t v) { return ref(p).fetch_add(v, std::memory_order_acq_rel); }
  uint64_t compare_exchange(uint64_t* p, uint64_t expected, uint64_t desired) {
    ref(p).compare_exchange_strong(expected, desired, std::memory_order_acq_rel);
    return expected;
  }
  void fence() { std::atomic_thread_fence(std::memory_order_seq_cst); }

  bool any(bool value) const { return value; }
  void barrier() const {}
  void write(std::byte* to, const std::byte* from, uint64_t bytes) { std::memcpy(to, from, bytes); }
  void write_past_caches(std::byte* to, const std::byte* from, uint64_t bytes) {
    copy_past_caches(to, from, bytes);
  }
  Pack load_few(const std::byte* from, uint64_t bytes) {
    Pack pack{0, 0};
    std::memcpy(&pack, from, bytes);
    return pack;
  }
  void store_few(std::byte* to, Pack pack, uint64_t bytes) { std::memcpy(to, &pack, bytes); }
  uint64_t owner() const { return uint64_t(getpid()); }
  bool read_owned(uint64_t owner, std::byte* to, const std::byte* from, uint64_t bytes) {
    return read_process(uint32_t(owner), to, from, bytes);
  }
  void write_words(uint64_t* to, uint64_t first, uint64_t second) {
    store_relaxed(to, first);
    store_relaxed(to + 1, second);
  }
  void read_words(const uint64_t* from, uint64_t& first, uint64_t& second) const {
    first = load_relaxed(from);
    second = load_relaxed(from + 1);
  }
  void release_words(uint64_t* to, uint64_t first, uint64_t second) {
    store_release(to, first);
    store_release(to + 1, second);
  }
  void release_words_early(uint64_t* to, uint64_t first, uint64_t second) {
    release_words(to, first, second);
  }
  void acquire_words(const uint64_t* from, uint64_t& first, uint64_t& second) const {
    first = load_acquire(from);
    second = load_acquire(from + 1);
  }
  void store_after_loads(uint64_t* p, uint64_t v) { store_release(p, v); }

  uint64_t now() const { return monotonic_ns(); }
  bool expired(uint64_t start, uint64_t budget) const { return monotonic_ns() - start >= budget; }
  // Whoever waits had better sleep (Carrier::is_bulky()).
  bool waits_long() const { return carrier_ != nullptr && carrier_->is_bulky(); }

  void pause(uint32_t attempt) {
    if (carrier_ != nullptr && attempt % kPausesALook == 0) help();
    if (attempt < policy_.spins)
      relax();
    else
      sched_yield();
  }

  void idle(uint32_t pass) {
    if (listener_ != nullptr) listener_->look(true);
    if (carrier_ != nullptr && sleeps_at_carrier(pass)) return;
    const bool sleeps = pass >= policy_.idle_spins + policy_.idle_yields;
    if (carrier_ != nullptr && !sleeps) help();
    if (pass < policy_.idle_spins) return relax();
    if (!sleeps) {
      sched_yield();
      return;
    }
    // One more pass between the two, as the doorbell's protocol asks.
    stop_helping();
    if (!sleeper_.prepared())
      sleeper_.prepare();
    else
      sleeper_.sleep(policy_.sleep_ns);
  }
  void busy() {
    sleeper_.cancel();
    if (at_carrier_) carrier_->cancel();
    at_carrier_ = false;
  }

  void notify(Doorbell* bell) { ring(bell); }
  void notify_host() {
    if (listener_ != nullptr)
      listener_->look(false);
    else
      ring(host_bell_);
  }

 private:
  static std::atomic_ref<uint64_t> ref(const uint64_t* p) {
    return std::atomic_ref<uint64_t>(*const_cast<uint64_t*>(p));
  }

  static constexpr uint32_t kPausesALook = 4;  // a look costs a call of the system
  // Fruitless passes with a carrier, before a sleep: as long as a wake-up costs, or a peer takes to answer.
  // Who polls longer loses its share of the core to others, and stands still when the answer is there.
  static constexpr uint64_t kLooksNs = 50'000;

  // After a while of looking in vain: one pass more, then a sleep where messages of other hosts come in, so
  // that no other thread has to wake this one. False: not yet, or not here.
  bool sleeps_at_carrier(uint32_t pass) {
    if (at_carrier_) {
      at_carrier_ = false;
      carrier_->sleep(policy_.sleep_ns);
      carrier_->look();
      return true;
    }
    const uint64_t now = monotonic_ns();
    if (pass == 1) idle_since_ns_ = now;
    if (now - idle_since_ns_ < kLooksNs && !waits_long()) return false;
    help();
    at_carrier_ = carrier_->prepare();
    return at_carrier_;
  }

  void help() {
    if (!helping_) carrier_->enter();
    helping_ = true;
    carrier_->look();
  }
  void stop_helping() {
    if (helping_) carrier_->leave();
    helping_ = false;
  }

  uint32_t block_;
  WaitPolicy policy_;
  Doorbell* host_bell_;
  CompletionListener* listener_;
  Carrier* carrier_;
  bool helping_ = false;
  bool at_carrier_ = false;  // its prepare() was called
  uint64_t idle_since_ns_ = 0;
  Sleeper sleeper_;
};
static_assert(device::Machine<CpuMachine>);

}  // namespace starling::cpu
