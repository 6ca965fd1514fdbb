// Sleeping on a 32-bit word that may lie in memory shared between processes.
#pragma once
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>
#include <cstdint>

namespace starling::cpu {

// Returns when woken, when *word is not `expected`, after timeout_ns, or for no reason.
inline void futex_wait(const uint32_t* word, uint32_t expected, uint64_t timeout_ns) {
  const timespec timeout{time_t(timeout_ns / 1000000000), long(timeout_ns % 1000000000)};
  syscall(SYS_futex, word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

inline void futex_wake_all(const uint32_t* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

inline uint64_t monotonic_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return uint64_t(now.tv_sec) * 1000000000 + uint64_t(now.tv_nsec);
}

}  // namespace starling::cpu
