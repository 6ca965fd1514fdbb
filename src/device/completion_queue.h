// The completion queue in the three forms of DFCCL §5, behind one interface:
//
//   publish(m, token)  by a block; false: busy or full, try again at the next yield. Never waits.
//   pop(m, token)      by the one poller; false: nothing there
//
// A token is 48 bits and not 0. All three order what the completing blocks wrote before the token (release),
// and the poller acquires it.
#pragma once
#include "device/handover.h"
#include "wire/queue.h"

namespace starling::device {

inline constexpr uint64_t kTokenBits = 48;
inline constexpr uint64_t kTokenMask = (uint64_t(1) << kTokenBits) - 1;

// `entries` and `head` may lie elsewhere than the rest: in the host's memory, with one CompletionMemory for
// the blocks in the GPU's memory and one for the poller in the host's, of which each uses its part.
struct CompletionMemory {
  alignas(64) uint64_t tail;  // vanilla: writer: lock holder; packed: blocks, by compare-exchange
  alignas(64) uint64_t lock;  // vanilla only: 0 free
  uint64_t head_seen;         // packed: an earlier value of *head; writers: blocks
  uint64_t capacity;          // power of two
  uint64_t* entries;          // one 64-bit word each, zero at first
  uint64_t* head;             // writer: the poller
};

// Vanilla ring: a producer takes the lock, reads head and tail, writes the entry, then the tail, and lets go:
// five operations on host memory.
struct RingCompletionQueue {
  template <class M>
  STARLING_HOST_DEVICE static bool publish(M& m, CompletionMemory& q, uint64_t token, uint32_t) {
    // Acquire and release: the lock orders us after the last holder's tail.
    if (m.compare_exchange(&q.lock, 0, 1) != 0) return false;
    const uint64_t tail = m.load_relaxed(&q.tail);
    // Acquire: the poller has read the entry that we would overwrite; pairs with the release of `head` in
    // pop().
    const bool room = tail - m.load_acquire(q.head) < q.capacity;
    if (room) {
      m.store_relaxed(&q.entries[tail & (q.capacity - 1)], token);
      // Release: the entry before the tail; pairs with the acquire in pop().
      m.store_release(&q.tail, tail + 1);
    }
    // Release: entry and tail before the lock; pairs with the next holder's compare_exchange.
    m.store_release(&q.lock, 0);
    return room;
  }
  template <class M>
  static bool pop(M& m, CompletionMemory& q, uint64_t& token) {
    const uint64_t head = m.load_relaxed(q.head);
    // Acquire: pairs with the release of `tail` in publish().
    if (m.load_acquire(&q.tail) == head) return false;
    token = m.load_relaxed(&q.entries[head & (q.capacity - 1)]);
    // Release: our reading of the entry; pairs with the acquire of `head` in publish().
    m.store_release(q.head, head + 1);
    return true;
  }
};

// Optimized ring: the entry carries the low bits of its position, so the poller needs no tail: four
// operations.
struct PackedRingCompletionQueue {
  STARLING_HOST_DEVICE static uint64_t lap_of(uint64_t position, uint64_t capacity) {
    return ((position / capacity + 1) & 0xffff) << kTokenBits;
  }
  template <class M>
  STARLING_HOST_DEVICE static bool publish(M& m, CompletionMemory& q, uint64_t token, uint32_t) {
    const uint64_t tail = m.load_relaxed(&q.tail);
    if (!has_room(m, q, tail)) return false;
    // On GPUs the fence waits for what is on its way while the exchange does.
    const uint64_t found = claim(m, q, tail);
    auto&& view = fenced(m);
    if (found != tail) return false;
    // Release: what the operation wrote before the entry that says it is complete; pairs with the acquire in
    // pop().
    view.store_release(&q.entries[tail & (q.capacity - 1)], lap_of(tail, q.capacity) | token);
    return true;
  }
  // Relaxed, where machines can: nobody reads anything because of `tail`. That the poller has read the entry
  // which is overwritten has_room() has acquired.
  template <class M>
  STARLING_HOST_DEVICE static uint64_t claim(M& m, CompletionMemory& q, uint64_t tail) {
    if constexpr (requires { m.compare_exchange_relaxed(&q.tail, tail, tail); })
      return m.compare_exchange_relaxed(&q.tail, tail, tail + 1);
    else
      return m.compare_exchange(&q.tail, tail, tail + 1);
  }
  // Acquire: pairs with the release in has_room() by whichever block looked. Where publish() fences before it
  // stores, that makes an acquire of a relaxed load.
  template <class M>
  STARLING_HOST_DEVICE static uint64_t seen_head(M& m, const CompletionMemory& q) {
    if constexpr (requires { m.fenced(); })
      return m.load_relaxed(&q.head_seen);
    else
      return m.load_acquire(&q.head_seen);
  }
  // Most often the last look at the poller's counter says enough: it may be far away.
  template <class M>
  STARLING_HOST_DEVICE static bool has_room(M& m, CompletionMemory& q, uint64_t tail) {
    if (tail - seen_head(m, q) < q.capacity) return true;
    // Acquire: the poller has read the entry that we would overwrite; pairs with the release of `head` in
    // pop().
    const uint64_t head = m.load_acquire(q.head);
    if (tail - head >= q.capacity) return false;
    m.fence();  // what we acquired, before the store also where releases are plain ones (handover.h,
                // fenced())
    // Release: hands on what we acquired. Blocks may store in any order: an older value asks once more.
    m.store_release(&q.head_seen, head);
    return true;
  }
  template <class M>
  static bool pop(M& m, CompletionMemory& q, uint64_t& token) {
    const uint64_t head = m.load_relaxed(q.head);
    // Acquire: pairs with the release of the entry in publish().
    const uint64_t entry = m.load_acquire(&q.entries[head & (q.capacity - 1)]);
    if ((entry & ~kTokenMask) != lap_of(head, q.capacity)) return false;
    token = entry & kTokenMask;
    // Release: our reading of the entry; pairs with the acquire of `head` in publish().
    m.store_release(q.head, head + 1);
    return true;
  }
};

// Slots: no ring at all; one compare-exchange puts the token into any free slot. The poller scans.
struct SlotCompletionQueue {
  template <class M>
  STARLING_HOST_DEVICE static bool publish(M& m, CompletionMemory& q, uint64_t token, uint32_t block) {
    // Blocks begin at different slots; a few tries, then the next yield tries on.
    const uint64_t first = token + uint64_t(block) * 8;
    for (uint64_t k = 0; k < 8; ++k) {
      uint64_t* slot = &q.entries[(first + k) & (q.capacity - 1)];
      // The exchange releases what the operation wrote; pairs with the acquire in pop(). It acquires pop()'s
      // 0.
      if (m.load_relaxed(slot) == 0 && m.compare_exchange(slot, 0, token) == 0) return true;
    }
    return false;
  }
  template <class M>
  static bool pop(M& m, CompletionMemory& q, uint64_t& token) {
    const uint64_t head = m.load_relaxed(q.head);  // where the last scan stopped
    for (uint64_t k = 0; k < q.capacity; ++k) {
      uint64_t* slot = &q.entries[(head + k) & (q.capacity - 1)];
      // Acquire: pairs with the exchange in publish().
      const uint64_t seen = m.load_acquire(slot);
      if (seen == 0) continue;
      token = seen;
      // Release: the place is free; pairs with the exchange in publish().
      m.store_release(slot, 0);
      m.store_relaxed(q.head, head + k + 1);
      return true;
    }
    return false;
  }
};

enum class CompletionQueueKind : uint32_t { kRing = 0, kPackedRing = 1, kSlots = 2 };

template <class M>
STARLING_HOST_DEVICE bool publish(M& m, CompletionQueueKind kind, CompletionMemory& q, uint64_t token,
                                  uint32_t block) {
  switch (kind) {
    case CompletionQueueKind::kRing: return RingCompletionQueue::publish(m, q, token, block);
    case CompletionQueueKind::kPackedRing: return PackedRingCompletionQueue::publish(m, q, token, block);
    default: return SlotCompletionQueue::publish(m, q, token, block);
  }
}

template <class M>
bool pop(M& m, CompletionQueueKind kind, CompletionMemory& q, uint64_t& token) {
  switch (kind) {
    case CompletionQueueKind::kRing: return RingCompletionQueue::pop(m, q, token);
    case CompletionQueueKind::kPackedRing: return PackedRingCompletionQueue::pop(m, q, token);
    default: return SlotCompletionQueue::pop(m, q, token);
  }
}

}  // namespace starling::device
