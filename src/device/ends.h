// The connector ends of a block, near. An end is some words that an instruction looks at one after the other;
// in a GPU's memory each look is a trip of its own, as every acquire empties the cache. So a block that
// begins or resumes an operation brings all its ends into fast memory at once, works on the copies, and
// writes them back when it leaves the operation, done or stuck. They are its part's (wire/handover.h): nobody
// else looks at them meanwhile.
#pragma once
#include "device/machine.h"
#include "wire/lane.h"
#include "wire/pack.h"
#include "wire/plan.h"

namespace starling::device {

// Blocks with more connections one way work on the ends where they lie.
inline constexpr uint32_t kNearEnds = 8;

struct alignas(16) NearEnds {
  ReceiveEnd receives[kNearEnds];
  SendEnd sends[kNearEnds];
  uint64_t placed[kNearEnds];  // of bound programs: messages on each of the latter whose place was found
};

// Those of a block's fast memory, on machines whose blocks have one.
template <class M>
STARLING_HOST_DEVICE NearEnds* near_ends(const M& m, NearEnds& ends) {
  if constexpr (M::kStagesPlans)
    return m.stages() ? &ends : nullptr;
  else
    return nullptr;
}

// Of one block in one operation. `near` null: there is no fast memory. Between two barriers each end is
// touched by one thread.
struct BlockEnds {
  const Lane* lane = nullptr;
  const Connection* receive_connections = nullptr;
  const Connection* send_connections = nullptr;
  uint32_t receive_count = 0;
  uint32_t send_count = 0;
  NearEnds* near = nullptr;
  bool brought = false;  // the copies count now

  STARLING_HOST_DEVICE bool fit() const {
    return near != nullptr && receive_count <= kNearEnds && send_count <= kNearEnds;
  }
  // Of connection k of the block.
  STARLING_HOST_DEVICE ReceiveEnd& receive(uint32_t k) const {
    return brought ? near->receives[k] : far_receive(k);
  }
  STARLING_HOST_DEVICE SendEnd& send(uint32_t k) const { return brought ? near->sends[k] : far_send(k); }

  // Where they lie.
  STARLING_HOST_DEVICE ReceiveEnd& far_receive(uint32_t k) const {
    const Connection c = receive_connections[k];
    return lane->receives[c.peer * lane->channel_count + c.channel];
  }
  STARLING_HOST_DEVICE SendEnd& far_send(uint32_t k) const {
    const Connection c = send_connections[k];
    return lane->sends[c.peer * lane->channel_count + c.channel];
  }
};

// to(k) = from(k), by all threads together.
template <class M, class To, class From>
STARLING_HOST_DEVICE void copy_ends(M& m, uint32_t count, To&& to, From&& from) {
  if constexpr (M::kVectorThreads) {
    // All ends at the same time: one trip to memory.
    constexpr uint32_t kPacks = sizeof(to(0)) / sizeof(Pack);
    static_assert(sizeof(to(0)) % sizeof(Pack) == 0);
    for (uint32_t p = m.thread_index(); p < count * kPacks; p += m.thread_count())
      reinterpret_cast<Pack*>(&to(p / kPacks))[p % kPacks] =
          reinterpret_cast<const Pack*>(&from(p / kPacks))[p % kPacks];
  } else {
    for (uint32_t k = m.thread_index(); k < count; k += m.thread_count()) to(k) = from(k);
  }
}

// All threads. A barrier must follow.
template <class M>
STARLING_HOST_DEVICE void bring_ends(M& m, const BlockEnds& ends) {
  copy_ends(
      m, ends.receive_count, [&](uint32_t k) -> ReceiveEnd& { return ends.near->receives[k]; },
      [&](uint32_t k) -> ReceiveEnd& { return ends.far_receive(k); });
  copy_ends(
      m, ends.send_count, [&](uint32_t k) -> SendEnd& { return ends.near->sends[k]; },
      [&](uint32_t k) -> SendEnd& { return ends.far_send(k); });
}

// All threads, after a barrier; another must follow before anybody looks at them.
template <class M>
STARLING_HOST_DEVICE void return_ends(M& m, const BlockEnds& ends) {
  copy_ends(
      m, ends.receive_count, [&](uint32_t k) -> ReceiveEnd& { return ends.far_receive(k); },
      [&](uint32_t k) -> ReceiveEnd& { return ends.near->receives[k]; });
  copy_ends(
      m, ends.send_count, [&](uint32_t k) -> SendEnd& { return ends.far_send(k); },
      [&](uint32_t k) -> SendEnd& { return ends.near->sends[k]; });
}

}  // namespace starling::device
