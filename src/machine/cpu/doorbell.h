// The sleeping side and the ringing side of a Doorbell on the CPU machine (protocol: wire/doorbell.h).
#pragma once
#include <atomic>
#include <cstdint>

#include "machine/cpu/futex.h"
#include "machine/cpu/process_nonce.h"
#include "wire/doorbell.h"

namespace starling::cpu {

// An eventfd takes what does not fill its 64 bits.
inline void notify_event(int fd) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(fd, &one, sizeof one);
}

// Before the sleeper's bit, kEventBit, is first set; the setting releases it.
inline void own_event(Doorbell* bell, int event_fd) {
  bell->event_fd = event_fd;
  bell->event_owner = process_nonce();
}

// Wakes those whose bits are in `whom`.
inline void ring(Doorbell* bell, uint64_t whom) {
  // The store before, the look at `sleepers` after; pairs with the fence in Sleeper::prepare().
  std::atomic_thread_fence(std::memory_order_seq_cst);
  std::atomic_ref<uint64_t> sleepers(bell->sleepers);
  // Acquire: pairs with the release of kEventBit; what own_event() wrote is there.
  const uint64_t seen = sleepers.load(std::memory_order_acquire) & whom;
  if (seen == 0) return;
  if (seen & kEventBit && bell->event_owner != process_nonce()) whom &= ~kEventBit;
  const uint64_t asleep = sleepers.fetch_and(~whom, std::memory_order_acq_rel) & whom;  // 0: another rings
  auto wake = [](uint32_t& word) {
    std::atomic_ref<uint32_t>(word).fetch_add(1, std::memory_order_acq_rel);
    futex_wake_all(&word);
  };
  constexpr uint64_t kOutside = kOutsideBit | kLaunchBit;
  if (asleep & kEventBit) notify_event(bell->event_fd);
  if (asleep & ~(kOutside | kEventBit)) wake(bell->event);
  if (asleep & kOutside) wake(bell->outside);
}

// Call after the store that the sleeper waits for.
inline void ring(Doorbell* bell) {
  if (bell != nullptr) ring(bell, ~kLaunchBit);
}

// The same after a submission: it also wakes who waits outside without a task.
inline void ring_for_launch(Doorbell* bell) { ring(bell, ~uint64_t(0)); }

// One thread's place at a doorbell: prepare, look once more, then sleep (or cancel).
class Sleeper {
 public:
  // A block inside the daemon, or the host's poller.
  Sleeper(Doorbell* bell, uint32_t index)
      : bell_(bell), word_(bell ? &bell->event : nullptr), bit_(uint64_t(1) << (index % 61)) {}
  // A thread that waits for a launch.
  static Sleeper outside(Doorbell* bell) { return Sleeper(bell, &bell->outside, kLaunchBit); }
  // Before prepare(): with parked tasks whatever peers store is news; without, submissions alone.
  void expect_news(bool parked) {
    if (bit_ >= kLaunchBit) bit_ = parked ? kLaunchBit | kOutsideBit : kLaunchBit;
  }

  bool prepared() const { return prepared_; }

  void prepare() {
    std::atomic_ref<uint32_t> event(*word_);
    // Acquire: pairs with the addition in ring(): before the bit, so that a ring in between is not slept
    // through.
    event_ = event.load(std::memory_order_acquire);
    std::atomic_ref<uint64_t>(bell_->sleepers).fetch_or(bit_, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with the fence in ring()
    prepared_ = true;
  }

  void sleep(uint64_t timeout_ns) {
    futex_wait(word_, event_, timeout_ns);
    cancel();
  }

  void cancel() {
    if (!prepared_) return;
    std::atomic_ref<uint64_t>(bell_->sleepers).fetch_and(~bit_, std::memory_order_relaxed);
    prepared_ = false;
  }

 private:
  Sleeper(Doorbell* bell, uint32_t* word, uint64_t bit) : bell_(bell), word_(word), bit_(bit) {}

  Doorbell* bell_;
  uint32_t* word_;
  uint64_t bit_;
  uint32_t event_ = 0;
  bool prepared_ = false;
};

}  // namespace starling::cpu
