// The bounded wait: the only one of an operation that runs.
#pragma once
#include "device/execution.h"
#include "device/machine.h"

namespace starling::device {

struct NeverYields {
  STARLING_HOST_DEVICE bool operator()() const { return false; }
};

// Polls at least once. `yields`, on machines that take turns: could another task have the block? False: not
// within the budget, or the lane is broken.
template <class M, class Yields, class Ready>
STARLING_HOST_DEVICE bool in_time(M& m, const Budget& budget, const uint64_t* fault, Yields&& yields,
                                  Ready&& ready) {
  if (ready()) return true;
  const uint64_t start = m.now();
  for (uint32_t attempt = 0;; ++attempt) {
    m.pause(attempt);
    if (ready()) return true;
    // Patience is for those that nobody waits behind. Where yielding is switched off it has no end.
    if constexpr (M::kTakesTurns)
      if (!budget.unbounded && attempt % 8 == 0 && leads(m) && yields()) return false;
    if constexpr (requires { m.waits_long(); })
      if (!budget.unbounded && m.waits_long()) return false;
    const bool ended = budget.unbounded ? false : m.expired(start, budget.ticks);
    // A broken lane ends every wait, also one whose budget would last long.
    if (ended || (attempt % 64 == 63 && m.load_relaxed(fault) != 0)) return false;
  }
}

}  // namespace starling::device
