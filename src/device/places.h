// Messages that are put (wire/connector.h): the receiver lends a place, the sender writes there and says so.
// Of an end only one thread of its block calls these; find_place() may be another's, since it reads nothing
// that the rest of them writes.
//
// Order. What the receiver did with that memory before is before the place's words, which the sender
// acquires. What the sender wrote there is before `put`, which the receiver acquires.
#pragma once
#include "device/connector.h"
#include "device/machine.h"
#include "device/opened.h"
#include "device/told.h"
#include "wire/connector.h"
#include "wire/pack.h"
#include "wire/plan.h"

namespace starling::device {

// Where message `number` that is put goes, if it is told: {address, number of the owner's registration and
// length}.
template <class M>
STARLING_HOST_DEVICE bool load_place(M& m, const SendEnd& end, uint64_t number, Pack& place) {
  return load_flagged(m, end.credit->lent[number % kMaxLent], word_flag(number, kMaxLent), place);
}
template <class M>
STARLING_HOST_DEVICE bool next_place(M& m, const Lane& lane, SendEnd& end, Pack& place) {
  return is_connected(m, lane, end) && load_place(m, end, end.put, place);
}

// Beside the number: how long the place is. Who counts otherwise than its peer waits in vain, instead of
// writing past the end: mostly both hear of it before (comm/matching.cc).
inline constexpr uint32_t kPlaceBytesBit = 16;
static_assert(kMaxRegistrations <= 1u << kPlaceBytesBit);

STARLING_HOST_DEVICE constexpr uint64_t place_bytes(const Pack& place) {
  return place.high >> kPlaceBytesBit;
}
STARLING_HOST_DEVICE constexpr uint64_t place_number(const Pack& place) {
  return place.high % (uint64_t(1) << kPlaceBytesBit);
}

// The same, and where this rank writes `bytes` of it. The connection is made.
template <class M>
STARLING_HOST_DEVICE bool find_place(M& m, const SendEnd& end, uint64_t number, uint64_t bytes,
                                     std::byte*& where) {
  Pack place;
  if (!load_place(m, end, number, place) || place_bytes(place) != bytes) return false;
  place.high = place_number(place);
  where = reinterpret_cast<std::byte*>(place.low);
  if (end.opened == nullptr) return true;
  const uint64_t at = opened_place(m, *end.opened, place.high);
  where = const_cast<std::byte*>(address_at(at, place));
  return at != 0;
}

template <class M>
STARLING_HOST_DEVICE bool find_next_place(M& m, const Lane& lane, SendEnd& end, uint64_t bytes,
                                          std::byte*& where) {
  return is_connected(m, lane, end) && find_place(m, end, end.put, bytes, where);
}

// All threads have stored the message (a barrier came before).
template <class M>
STARLING_HOST_DEVICE void was_put(M& m, SendEnd& end) {
  ++end.put;
  // Release: the message before the counter; pairs with the acquire in has_landed().
  m.store_release(&end.inbox->put, end.put);
  m.notify(end.doorbell);
}

// Tells where the next message goes, and how long it is. `early`: as store_flagged().
template <class M>
STARLING_HOST_DEVICE void lend(M& m, ReceiveEnd& end, Pack place, uint64_t bytes, bool early) {
  place.high |= bytes << kPlaceBytesBit;
  store_flagged(m, end.credit->lent[end.lent % kMaxLent], place, word_flag(end.lent, kMaxLent), early);
  ++end.lent;
  m.notify(end.doorbell);
}

// Is the next message that is put here?
template <class M>
STARLING_HOST_DEVICE bool has_landed(M& m, const ReceiveEnd& end) {
  // Acquire: pairs with the release in was_put(); after it the message is readable.
  return int64_t(m.load_acquire(&end.inbox->put) - end.landed) > 0;
}

// Of protocol pull: a receive whose sender writes the message; a send whose messages its block writes.
STARLING_HOST_DEVICE inline bool is_put(const Instruction& i) { return (i.flags & kPut) != 0; }
STARLING_HOST_DEVICE inline bool lands(const Instruction& i) { return is_put(i) && i.opcode == Opcode::recv; }
STARLING_HOST_DEVICE inline bool puts(const Instruction& i) { return is_put(i) && i.opcode != Opcode::recv; }

}  // namespace starling::device
