// The timers that a flow's end arms, on a clock. What is late only makes failover later.
#pragma once
#include <algorithm>
#include <cstdint>

#include "link/link.h"

namespace starling::link::tcp {

// Lengths, in ns. A silent path is left after a watchdog and a probe.
struct TimerLengths {
  uint64_t watchdog_ns = 150'000'000;  // data is under way without progress
  uint64_t idle_watchdog_ns = 1'000'000'000;
  uint64_t resend_ns = 30'000'000;
  uint64_t probe_ns = 300'000'000;
  uint64_t report_ns = 2'000'000;  // transfers have come, and who sent them hears of it
  uint64_t reopen_ns = 50'000'000;  // doubled with each failure
  uint64_t longest_reopen_ns = 1'000'000'000;
  uint64_t connect_ns = 500'000'000;
  uint64_t answer_ns = 5'000'000'000;  // to a hello with queue pairs: memory is registered meanwhile
  uint64_t give_up_ns = 10'000'000'000;
};

class Timers {
 public:
  static constexpr uint64_t kNever = ~uint64_t(0);

  Timers() { std::fill_n(ends_, kCount, kNever); }

  void arm(Timer timer, uint32_t path, uint64_t end_ns) { ends_[index(timer, path)] = end_ns; }
  // One that is armed ends now.
  void hasten(Timer timer, uint32_t path, uint64_t now_ns) {
    uint64_t& end = ends_[index(timer, path)];
    if (end != kNever) end = std::min(end, now_ns);
  }
  void disarm(Timer timer, uint32_t path) { ends_[index(timer, path)] = kNever; }
  void disarm_all() { std::fill_n(ends_, kCount, kNever); }
  uint64_t next() const { return *std::min_element(ends_, ends_ + kCount); }

  // Takes one that has ended.
  bool expire(uint64_t now, Event& event) {
    for (uint32_t k = 0; k < kCount; ++k) {
      if (ends_[k] > now) continue;
      ends_[k] = kNever;
      event = {.kind = EventKind::kTimer};
      event.timer = Timer(k / kMaxPaths);
      event.path = k % kMaxPaths;
      return true;
    }
    return false;
  }

  static uint64_t length(const TimerLengths& lengths, Timer timer, uint32_t step) {
    switch (timer) {
      case Timer::kWatchdog: return step == 0 ? lengths.watchdog_ns : lengths.idle_watchdog_ns;
      case Timer::kResend: return lengths.resend_ns;
      case Timer::kGiveUp: return lengths.give_up_ns;
      case Timer::kProbe: return lengths.probe_ns;
      case Timer::kReopen:
        return std::min(lengths.reopen_ns << (step > 0 ? step - 1 : 0), lengths.longest_reopen_ns);
    }
    return 0;
  }

 private:
  static constexpr uint32_t kCount = 5 * kMaxPaths;
  static uint32_t index(Timer timer, uint32_t path) { return uint32_t(timer) * kMaxPaths + path; }

  uint64_t ends_[kCount];
};

}  // namespace starling::link::tcp
