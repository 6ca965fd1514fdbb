// What a proxy does for one connector between hosts: it looks at what our block posted and granted, tells the
// peer's proxy of it, and stores here what the peer's proxy tells. The two halves: link/carry/channels.h.
// Host code of a Machine, so that the simulator runs it too.
#pragma once
#include "base/assert.h"
#include "device/machine.h"
#include "wire/carried.h"

namespace starling::device {

// Before anything of it is told: what is told together was seen together.
template <class M>
void look_at_departures(M& m, const CarriedHalf& departures, Carried& carried) {
  // Acquire, both: pair with the releases in post() and grant(); messages and grants up to these are
  // readable.
  carried.posted_seen = m.load_acquire(&departures.inbox->posted);
  carried.granted_seen = m.load_acquire(&departures.credit->granted);
}

// The next message lies in the departing slot that its grant names. The grant came through us: we are the
// writer of our block's credit.
inline CarriedMessage take_message(const CarriedHalf& arrivals, const CarriedHalf& departures,
                                   Carried& carried) {
  const uint64_t k = carried.posted++;
  return {k, arrivals.credit->grants[k % kMaxCredits], departures.inbox->bytes[k % kMaxCredits]};
}

// Entry k is overwritten by grant k + 8, for which the peer must have used grant k: so not before we have
// told it.
inline GrantsRecord take_grants(const CarriedHalf& departures, uint32_t channel, Carried& carried) {
  GrantsRecord record{carried.granted_seen, channel, uint32_t(carried.granted_seen - carried.granted), {}};
  STARLING_ASSERT(record.count <= kMaxCredits, "grants are told before they are used up");
  for (uint32_t k = 0; k < record.count; ++k)
    record.grants[k] = departures.credit->grants[(carried.granted + k) % kMaxCredits];
  carried.granted = carried.granted_seen;
  return record;
}

// The message lies in its slot. Messages of a connector come in their order, so the next one is this one.
template <class M>
void deliver_message(M& m, const CarriedHalf& arrivals) {
  // Release: the message, which this thread has written there; pairs with the acquire in can_receive().
  m.store_release(&arrivals.inbox->posted, m.load_relaxed(&arrivals.inbox->posted) + 1);
}

template <class M>
void deliver_grants(M& m, const CarriedHalf& arrivals, const GrantsRecord& record) {
  for (uint32_t k = 0; k < record.count; ++k)
    arrivals.credit->grants[(record.granted - record.count + k) % kMaxCredits] = record.grants[k];
  // Release: the entries; and that the departing slots are free again, since the messages in them have
  // landed. Pairs with the acquire in can_send().
  m.store_release(&arrivals.credit->granted, record.granted);
}

}  // namespace starling::device
