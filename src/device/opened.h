// Looking up what a message of protocol pull names where it comes from another process: wire/registration.h
// has the picture. Of an end only one thread of its block calls this.
#pragma once
#include "base/assert.h"
#include "device/machine.h"
#include "wire/pack.h"
#include "wire/registration.h"

namespace starling::device {

// Has our host opened what is known by that number? Once it has, nobody asks the host's memory again.
template <class M>
STARLING_HOST_DEVICE bool is_opened(M& m, OpenedTable& table, uint64_t number) {
  STARLING_ASSERT(number - 1 < kMaxRegistrations - 1, "a message names no registration");
  OpenedRegistration& known = table.known[number];
  // Acquire: pairs with the release below, in whichever block copied it; after it the offset is readable.
  if (m.load_acquire(&known.made) != 0) return true;
  OpenedRegistration& told = table.told[number];
  // Acquire: pairs with the release in PeerRegistrations::open(): the memory is mapped, and where.
  if (m.load_acquire(&told.made) == 0) {
    // For the host's error, if it cannot: it opens what it finds without being asked. No order.
    if (m.load_relaxed(&known.wanted) == 0) {
      m.store_relaxed(&known.wanted, 1);
      m.store_relaxed(&told.wanted, 1);
    }
    return false;
  }
  m.store_relaxed(&known.offset, m.load_relaxed(&told.offset));
  // Release: the offset; and what we acquired from the host, for those that acquire this instead.
  m.store_release(&known.made, 1);
  return true;
}

// After is_opened(): where this rank's blocks read what the message {address, number} names.
template <class M>
STARLING_HOST_DEVICE const std::byte* opened_address(M& m, const OpenedTable& table, const Pack& message) {
  return reinterpret_cast<const std::byte*>(message.low + m.load_relaxed(&table.known[message.high].offset));
}

}  // namespace starling::device
