// The two shared halves of a connector, and the private state that each end keeps.
//
//        sender's memory                                   receiver's memory
//   Credit { granted, grants[] }   <-- receiver writes     Inbox { posted }   <-- sender writes
//                                                          slots: private, and borrowed from the pool
//
// A message goes into the slot that the oldest unused grant names. Order of stores:
//   sender    data into the slot ........ then posted  := posted + 1   (release; receiver acquires)
//   receiver  grants[k % 8] := slot ..... then granted := granted + 1  (release; sender acquires)
// Mostly grant k names the slot that grant k - 8 has named. Then the entry is not stored, and the counter
// comes after the receiver's loads alone, which takes no fence. Both counters only grow, and are never reset:
// they outlive operations, parks and quits, which is what lets either side stop and go on at any time (DFCCL
// §4.1, persistent visibility).
//
// Grants. The private slots are granted when the lane is made: the counter starts at private_slots and
// grant k < private_slots names private slot k, on both sides, without a message. A private slot is granted
// again as soon as it was read. While an operation still expects more messages than are granted, the
// receiver adds slots of its pool: those make the pipe deeper, never possible. Because grants are used in
// order and a pool slot is added only while granted < expected, all of them are back when it ends.
// Packets have a ring of their own, of kPacketSlots, and counters of their own, so that plans of both
// protocols may follow each other in a lane: message k goes into packet slot k % kPacketSlots, as soon as
// message k - kPacketSlots was read. Nothing else is ever stored there, which is why a flag that is not
// message k's is an older message's (device/packets.h). A broken lane ends amid an operation: what it has
// lent comes back when the sender's host says that it has withdrawn (wire/arena.h), or the sender's process
// is gone: then nobody writes into those slots any more.
//
//
// What a message of protocol pull says, an address and a number, fits into two words. It uses up a grant, but
// its words lie in `told`, and `posted` is not stored: each word says by its highest bit, which changes with
// each round of the ring, that it is the next message's. Message k of these overwrites k - 8, which was read
// before the grant came. Messages that are put (wire/plan.h, kPut) go where the receiver wants them, and no
// slot and no grant is theirs:
//   receiver  lent[k % 16] := the place of message k ... two such words   (release; sender acquires)
//   sender    data into that place ................... then put := put + 1   (release; receiver acquires)
// Place k is told after message k - 16 has come.
#pragma once
#include <cstdint>

#include "base/portable.h"
#include "wire/doorbell.h"
#include "wire/registration.h"
#include "wire/types.h"

namespace starling {

inline constexpr uint32_t kMaxCredits = 8;  // grants outstanding per connector at most
inline constexpr uint32_t kPoolSlot = 1u << 16;  // grants from here on name slots of the pool
inline constexpr uint32_t kPacketSlots = 4;  // packet messages under way per connector at most
// Flags of Inbox::bytes. Sent: the slot holds the address of the message. Received: the message lies where
// the receiving rank wants it (Landing), not in its slot.
inline constexpr uint32_t kElsewhere = 1u << 31;

struct alignas(64) Inbox {
  uint64_t posted;  // writer: the sending block
  // Where a proxy carries the messages to another host (SendEnd::carried): how long message k is, at k % 8,
  // and kElsewhere.
  uint32_t bytes[kMaxCredits];  // writer: the sending block, before `posted`
  uint64_t put;  // messages that were put; writer: the sending block
  uint64_t reserved[2];
  uint64_t told[kMaxCredits][2];  // protocol pull: {address, whose or by which number}; writer: likewise
};
static_assert(sizeof(Inbox) == 192);

struct alignas(64) Credit {
  uint64_t granted;  // writer: the receiving block
  uint32_t grants[kMaxCredits];  // writer: the receiving block, before `granted`
  uint64_t packets_read;  // packet messages read to their end; writer: the receiving block
  uint64_t
      taken;  // of messages before this one nobody reads the source any more; writer: a proxy that carries
  uint64_t reserved;
  uint64_t lent[kMaxLent][2];  // {address, registration's number | length << 16}; writer: the receiving block
};
static_assert(sizeof(Credit) == 320);

// What the host tells both of our ends of one channel of the halves that are the peer's. In the host's
// memory: telling takes plain stores, and no call of a driver, which may stand until the blocks have got on.
struct alignas(64) PeerIntroduction {
  uint64_t made;  // 1: all below is there; writer: the host (release; the block acquires)
  Credit* credit;
  Inbox* inbox;
  std::byte* private_slots;
  std::byte* pool;
  uint64_t* packets;
  Doorbell* doorbell;
  uint32_t carried;
  uint32_t reserved;
};
static_assert(sizeof(PeerIntroduction) == 64);

// The sending end. What is this rank's the host sets when it makes the lane; the rest, the block that owns
// the end.
struct alignas(16) SendEnd {
  uint64_t connected;  // 1: what is the peer's was taken from the introduction; writer: the block
  const Credit* credit;  // in this rank's memory
  Inbox* inbox;  // in the peer's memory
  std::byte* private_slots;  // in the peer's memory
  std::byte* pool;  // in the peer's memory
  uint64_t* packets;  // in the peer's memory: the ring of packet slots
  uint64_t sent;  // messages posted so far; writer: the block
  uint64_t granted_seen;  // last value read from credit->granted; writer: the block
  uint64_t packets_sent;  // packet messages sent so far; writer: the block
  uint64_t
      packets_granted;  // packet messages before this one may be sent, as far as is known; writer: the block
  Doorbell* doorbell;  // of the peer's daemon
  uint16_t peer;  // with `channel` its place among the lane's; set by the host
  uint16_t channel;
  uint32_t carried;  // 1: a proxy takes the messages to another host, and has to know how long they are
  uint64_t told;  // messages of protocol pull so far; writer: the block
  uint64_t put;  // messages put so far; writer: the block
  OpenedTable* opened;  // as ReceiveEnd's: what places are named by
  uint64_t reserved;
};
static_assert(sizeof(SendEnd) == 128);

struct alignas(16) ReceiveEnd {
  uint32_t connected;  // as above
  uint16_t peer;  // as above
  uint16_t channel;
  const Inbox* inbox;  // in this rank's memory
  Credit* credit;  // in the peer's memory
  std::byte* private_slots;  // in this rank's memory
  const uint64_t* packets;  // in this rank's memory
  uint64_t received;  // messages read so far; writer: the block, as all below
  uint64_t granted;
  uint64_t posted_seen;
  uint64_t expected;  // value of `received` when the current operation will have ended
  uint64_t packets_received;  // packet messages read so far
  uint32_t grants[kMaxCredits];  // what was granted, to find message k and to give it back
  Doorbell* doorbell;  // of the peer's daemon
  // What a message of protocol pull names by its number; null: its address is one here, or says whose it is.
  OpenedTable* opened;
  uint64_t heard;  // messages of protocol pull so far
  uint64_t lent;  // places told so far
  uint64_t landed;  // messages seen there so far
  uint64_t reserved;
};
static_assert(sizeof(ReceiveEnd) == 160);

}  // namespace starling
