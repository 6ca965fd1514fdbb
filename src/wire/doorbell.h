// How a machine whose threads sleep is woken: "something was stored for you; look again".
//
// A sleeper sets its bit in `sleepers`, fences, looks at everything once more, and only then sleeps on
// `event`. Who stores something for it fences after the store and looks at `sleepers`: one of the two sees
// the other, so no wake-up is lost. On a GPU nobody sleeps, and nobody rings.
#pragma once
#include <cstdint>

#include "base/portable.h"

namespace starling {

inline constexpr uint64_t kOutsideBit = uint64_t(1) << 63;  // outside, with parked tasks: any ring counts
inline constexpr uint64_t kLaunchBit = uint64_t(1) << 62;   // outside: a submission counts

struct alignas(64) Doorbell {
  uint64_t sleepers;  // one bit a block; writers: sleepers set, ringers clear, atomically
  uint32_t event;     // counts rings; what sleepers sleep on
  uint32_t outside;  // the same for who waits outside the daemon for a launch (kOutsideBit, kLaunchBit): it
                     // is not woken while another thread runs the daemon
  uint32_t reserved[12];
};
static_assert(sizeof(Doorbell) == 64);

}  // namespace starling
