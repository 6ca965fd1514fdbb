// Looking up what a message of protocol pull names where it comes from another process: wire/registration.h
// has the picture. Of an end only one thread of its block calls this.
#pragma once
#include "base/assert.h"
#include "device/machine.h"
#include "wire/pack.h"
#include "wire/registration.h"

namespace starling::device {

// Has our host opened what is known by that number? Once it has, nobody asks the host's memory again. The
// place, as KnownRegistration has it; 0: not yet.
template <class M>
STARLING_HOST_DEVICE uint64_t opened_place(M& m, OpenedTable& table, uint64_t number) {
  STARLING_ASSERT(number - 1 < kMaxRegistrations - 1, "a message names no registration");
  KnownRegistration& known = table.known[number];
  // Acquire: pairs with the release below, in whichever block copied it, which acquired it from the host.
  if (const uint64_t place = m.load_acquire(&known.place); place != 0) return place;
  OpenedRegistration& told = table.told[number];
  // Acquire: pairs with the release in PeerRegistrations::open(): the memory is mapped, and where.
  if (m.load_acquire(&told.made) == 0) {
    // For the host's error, if it cannot: it opens what it finds without being asked. No order.
    if (m.load_relaxed(&known.wanted) == 0) {
      m.store_relaxed(&known.wanted, 1);
      m.store_relaxed(&told.wanted, 1);
    }
    return 0;
  }
  const uint64_t place = m.load_relaxed(&told.offset) + 1;
  // Release: what we acquired from the host, for those that acquire this instead.
  m.store_release(&known.place, place);
  return place;
}

template <class M>
STARLING_HOST_DEVICE bool is_opened(M& m, OpenedTable& table, uint64_t number) {
  return opened_place(m, table, number) != 0;
}

// Where this rank's blocks read what the message {address, number} names, if that number is at `place`.
STARLING_HOST_DEVICE inline const std::byte* address_at(uint64_t place, const Pack& message) {
  return reinterpret_cast<const std::byte*>(message.low + place - 1);
}

// After is_opened(): likewise.
template <class M>
STARLING_HOST_DEVICE const std::byte* opened_address(M& m, const OpenedTable& table, const Pack& message) {
  return address_at(m.load_relaxed(&table.known[message.high].place), message);
}

}  // namespace starling::device
