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
// A thread of the process `event_owner` that sleeps on sockets too: it is woken by its eventfd, which means
// something in that process alone. Ringers of others leave the bit alone; such a sleeper does not count on
// them.
inline constexpr uint64_t kEventBit = uint64_t(1) << 61;

struct alignas(64) Doorbell {
  uint64_t sleepers;  // one bit a block; writers: sleepers set, ringers clear, atomically
  uint32_t event;     // counts rings; what sleepers sleep on
  uint32_t outside;  // the same for who waits outside the daemon for a launch (kOutsideBit, kLaunchBit): it
                     // is not woken while another thread runs the daemon
  int32_t event_fd;  // of the sleeper with kEventBit; writer: it, before its bit is first set
  uint32_t unmatched;  // a host's: its communicators that have receives from any source without a sender.
                       // Only then does a message ring there. Writers: the owner's threads, atomically
  uint64_t event_owner;  // nonce of its process; likewise
  uint32_t reserved_2[8];
};
static_assert(sizeof(Doorbell) == 64);

}  // namespace starling
