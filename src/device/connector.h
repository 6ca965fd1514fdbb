// The two ends of a connector in action. Only the leader of the block that owns the end calls these.
// Protocol, counters and their writers: wire/connector.h.
#pragma once
#include "device/machine.h"
#include "wire/connector.h"
#include "wire/daemon.h"
#include "wire/lane.h"

namespace starling::device {

// `end` may be a copy (device/ends.h).
template <class End>
STARLING_HOST_DEVICE const PeerIntroduction& introduction_of(const Lane& lane, const End& end) {
  return lane.introductions[end.peer * lane.channel_count + end.channel];
}

// Is the peer's half known? Once it is, nobody looks again.
template <class M>
STARLING_HOST_DEVICE bool is_connected(M& m, const Lane& lane, SendEnd& end) {
  if (end.connected != 0) return true;
  const PeerIntroduction& peer = introduction_of(lane, end);
  // Acquire: pairs with the host's release, when all that we take here is there.
  if (m.load_acquire(&peer.made) == 0) return false;
  end.inbox = peer.inbox;
  end.private_slots = peer.private_slots;
  end.pool = peer.pool;
  end.packets = peer.packets;
  end.doorbell = peer.doorbell;
  end.carried = peer.carried;
  end.connected = 1;
  return true;
}

template <class M>
STARLING_HOST_DEVICE bool is_connected(M& m, const Lane& lane, ReceiveEnd& end) {
  if (end.connected != 0) return true;
  const PeerIntroduction& peer = introduction_of(lane, end);
  // Acquire: as above.
  if (m.load_acquire(&peer.made) == 0) return false;
  end.credit = peer.credit;
  end.doorbell = peer.doorbell;
  end.connected = 1;
  return true;
}

// May a message be written now?
template <class M>
STARLING_HOST_DEVICE bool can_send(M& m, const Lane& lane, SendEnd& end) {
  if (end.sent < end.granted_seen) return true;
  // Who was granted anything is connected.
  if (end.granted_seen == 0 && !is_connected(m, lane, end)) return false;
  // Acquire: pairs with store_release(granted) in grant(); after it the grant is readable, and the slot's
  // previous message was read to its end.
  end.granted_seen = m.load_acquire(&end.credit->granted);
  return end.sent < end.granted_seen;
}

// Is the next message there?
template <class M>
STARLING_HOST_DEVICE bool can_receive(M& m, const Lane& lane, ReceiveEnd& end) {
  if (end.received < end.posted_seen) return true;
  if (!is_connected(m, lane, end)) return false;
  // Acquire: pairs with store_release(posted) in post(); after it the message's bytes are readable.
  end.posted_seen = m.load_acquire(&end.inbox->posted);
  return end.received < end.posted_seen;
}

STARLING_HOST_DEVICE inline std::byte* slot_of(const Lane& lane, std::byte* private_slots, std::byte* pool,
                                               uint32_t grant) {
  return grant < kPoolSlot ? private_slots + uint64_t(grant) * lane.slot_bytes
                           : pool + uint64_t(grant - kPoolSlot) * lane.pool_slot_bytes;
}

STARLING_HOST_DEVICE inline std::byte* next_send_slot(const Lane& lane, const SendEnd& end) {
  return slot_of(lane, end.private_slots, end.pool, end.credit->grants[end.sent % kMaxCredits]);
}

STARLING_HOST_DEVICE inline const std::byte* next_receive_slot(const Lane& lane, const ReceiveEnd& end,
                                                               std::byte* pool) {
  return slot_of(lane, end.private_slots, pool, end.grants[end.received % kMaxCredits]);
}

// How long the message is that is posted next. The peer's block knows that from the plan; a proxy does not.
// The release in post() covers it; it is overwritten when message k + 8 was granted, so k was carried.
STARLING_HOST_DEVICE inline void measure(SendEnd& end, uint64_t bytes) {
  if (end.carried != 0) end.inbox->bytes[end.sent % kMaxCredits] = uint32_t(bytes);
}

// The next message is not in its slot, but lies at `source`, until it is taken (untaken()).
STARLING_HOST_DEVICE inline void name_source(const Lane& lane, SendEnd& end, const std::byte* source,
                                             uint64_t bytes) {
  *reinterpret_cast<const std::byte**>(next_send_slot(lane, end)) = source;
  end.inbox->bytes[end.sent % kMaxCredits] = uint32_t(bytes) | kElsewhere;
}

// How many messages have to be taken until the sources of all so far are their owner's again; 0: they are.
// Those before the last eight had their slots granted again, so they were taken.
template <class M>
STARLING_HOST_DEVICE uint64_t untaken(M& m, const SendEnd& end) {
  if (end.carried == 0) return 0;  // also of an end that is not connected: nothing was sent
  // Acquire: pairs with the release in note_taken() (link/carry/peer_link.cc): the proxy reads them no more.
  const uint64_t taken = m.load_acquire(&end.credit->taken);
  for (uint64_t k = end.sent; k > taken && k + kMaxCredits > end.sent; --k)
    if (end.inbox->bytes[(k - 1) % kMaxCredits] & kElsewhere) return k;
  return 0;
}

// Protocol pull: were all messages so far read? Each gave its private slot back.
template <class M>
STARLING_HOST_DEVICE bool was_read(M& m, const Lane& lane, SendEnd& end) {
  const uint64_t all = end.sent + lane.private_slots;
  if (int64_t(end.granted_seen - all) >= 0) return true;
  if (end.connected == 0) return true;  // nothing was sent
  // Acquire: pairs with store_release(granted) in grant(): the receiver has read our memory before.
  end.granted_seen = m.load_acquire(&end.credit->granted);
  return int64_t(end.granted_seen - all) >= 0;
}

// Has the next message, which is there, come to where it is wanted?
STARLING_HOST_DEVICE inline bool is_in_place(const ReceiveEnd& end) {
  return (end.inbox->bytes[end.received % kMaxCredits] & kElsewhere) != 0;
}

// Makes the message in the next slot visible. All threads' writes came before, by a barrier.
template <class M>
STARLING_HOST_DEVICE void post(M& m, SendEnd& end) {
  ++end.sent;
  // Release: the message's bytes before the counter; pairs with the acquire in can_receive().
  m.store_release(&end.inbox->posted, end.sent);
  m.notify(end.doorbell);
}

template <class M>
STARLING_HOST_DEVICE void grant(M& m, ReceiveEnd& end, uint32_t slot) {
  const uint32_t at = end.granted % kMaxCredits;
  // Since grant k - 8, or since the hosts made the lane: both sides begin with the same entries.
  const bool stands_there = end.grants[at] == slot;
  ++end.granted;
  if (stands_there) {
    // All threads have loaded the slot's old message: the counter is after that. Pairs with the acquire in
    // can_send(), and, of what the message named, in was_read().
    m.store_after_loads(&end.credit->granted, end.granted);
  } else {
    // Overwrites grant k - 8: its message was received, so the sender is done with the entry.
    end.grants[at] = end.credit->grants[at] = slot;
    // Release: the entry, and our reading of the slot's old message, before the counter; pairs as above.
    m.store_release(&end.credit->granted, end.granted);
  }
  m.notify(end.doorbell);
}

// Lends pool slots while the operation expects more messages than are granted.
template <class M>
STARLING_HOST_DEVICE void deepen(M& m, const Lane& lane, ReceiveEnd& end, SlotPool& pool) {
  if (lane.pool_slot_bytes == 0) return;
  while (end.granted < end.expected && end.granted - end.received < kMaxCredits && pool.free_count > 0)
    grant(m, end, pool.free[--pool.free_count]);
}

// The message was read to its end by all threads (a barrier came before): its slot is granted again, or goes
// back to the pool.
template <class M>
STARLING_HOST_DEVICE void consume(M& m, const Lane& lane, ReceiveEnd& end, SlotPool& pool) {
  const uint32_t slot = end.grants[end.received % kMaxCredits];
  ++end.received;
  if (slot < kPoolSlot || end.granted < end.expected)
    grant(m, end, slot);
  else
    pool.free[pool.free_count++] = slot;
  deepen(m, lane, end, pool);
}

}  // namespace starling::device
