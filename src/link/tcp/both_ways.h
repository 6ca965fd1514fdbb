// The two flows between two ranks, as one of them has them: what it sends, and what it receives.
#pragma once
#include "link/tcp/receiving_flow.h"
#include "link/tcp/sending_flow.h"

namespace starling::link::tcp {

// Timers end. Where what is under way comes to a standstill, the paths of the other direction are asked too:
// they go by the same ports, and nobody would ask before something is under way there, which may be when this
// direction goes on by another path. A rail that fell silent is so left by both within one watchdog and one
// probe. `receiving`: null before the peer has called.
inline void expire(SendingFlow& sending, ReceivingFlow* receiving, uint64_t now_ns) {
  sending.pump();
  sending.expire(now_ns);
  sending.pump();
  const bool suspects = sending.suspects();
  if (receiving == nullptr) return;
  if (suspects) receiving->ask_now(now_ns);
  receiving->expire(now_ns);
  receiving->pump();
}

}  // namespace starling::link::tcp
