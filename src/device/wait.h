// The bounded wait: the only one of an operation that runs.
#pragma once
#include "device/execution.h"
#include "device/machine.h"

namespace starling::device {

struct NeverYields {
  STARLING_HOST_DEVICE bool operator()() const { return false; }
};

// Before it looks again.
template <class M, class Yields>
STARLING_HOST_DEVICE bool gives_up(M& m, const Budget& budget, const uint64_t* fault, Yields&& yields,
                                   uint32_t attempt, uint64_t start) {
  // Patience is for those that nobody waits behind. Where yielding is switched off it has no end.
  if constexpr (M::kTakesTurns)
    if (!budget.unbounded && attempt % 8 == 0 && leads(m) && yields()) return true;
  if constexpr (requires { m.waits_long(); })
    if (!budget.unbounded && m.waits_long()) return true;
  if (!budget.unbounded && m.expired(start, budget.ticks)) return true;
  // A broken lane ends every wait, also one whose budget would last long.
  return attempt % 64 == 63 && m.load_relaxed(fault) != 0;
}

// Polls at least once. `yields`, on machines that take turns: could another task have the block? False: not
// within the budget, or the lane is broken.
template <class M, class Yields, class Ready>
STARLING_HOST_DEVICE bool in_time(M& m, const Budget& budget, const uint64_t* fault, Yields&& yields,
                                  Ready&& ready) {
  uint64_t start = 0;
  STARLING_ROLLED  // one copy of what is awaited
      for (uint32_t attempt = 0;; ++attempt) {
    if (ready()) return true;
    if (attempt == 0)
      start = m.now();
    else if (gives_up(m, budget, fault, yields, attempt - 1, start))
      return false;
    m.pause(attempt);
  }
}

}  // namespace starling::device
