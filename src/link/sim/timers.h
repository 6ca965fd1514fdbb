// The timers of one end as bits of a word.
#pragma once
#include "link/link.h"

namespace starling::link::sim {

// Timers without a path first, then those of the paths.
inline uint32_t timer_bit(Timer timer, uint32_t path) {
  if (timer < Timer::kProbe) return uint32_t(timer);
  return 3 + (timer == Timer::kReopen ? kMaxPaths : 0) + path;
}
inline Event timer_event(uint32_t bit) {
  Event event{.kind = EventKind::kTimer};
  event.timer = bit < 3 ? Timer(bit) : bit < 3 + kMaxPaths ? Timer::kProbe : Timer::kReopen;
  event.path = bit < 3 ? 0 : (bit - 3) % kMaxPaths;
  return event;
}
inline constexpr uint32_t kReceiversTimer = 32;  // added to a bit in an action's detail

// To open a path that is down fails, and changes nothing but numbers: so often it is tried.
inline constexpr uint32_t kTriesWhileDown = 1;

}  // namespace starling::link::sim
