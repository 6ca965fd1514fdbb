// Where the parts of a lane's region and of its connectors lie (wire/arena.h has the picture).
#pragma once
#include <cstdint>

#include "wire/arena.h"
#include "wire/copies.h"

namespace starling {

struct LaneShape {
  uint32_t size;
  uint32_t channels;
  uint32_t private_slots;
  uint32_t slot_bytes;
  uint64_t packet_ring_bytes;  // of an end
  uint32_t board_size;
  bool copies = false;  // its messages are moved by copy engines
};

struct LaneLayout {
  // Of the connectors, from their begin; nothing if there are no channels.
  uint64_t credit = 0;
  uint64_t slots = 0;
  uint64_t packets = 0;
  uint64_t connectors_bytes = 0;
  // Of the region.
  uint64_t traffic = 0;
  uint64_t withdrawals = 0;
  uint64_t offers = 0;
  uint64_t region_bytes = 0;

  explicit LaneLayout(const LaneShape& shape) {
    const uint64_t ends = uint64_t(shape.size) * shape.channels;
    credit = sizeof(Inbox) * ends;
    slots = (credit + sizeof(Credit) * ends + 4095) & ~uint64_t(4095);
    packets = slots + ends * shape.private_slots * shape.slot_bytes;
    connectors_bytes = ends == 0 ? 0 : packets + ends * shape.packet_ring_bytes;
    traffic = sizeof(LaneShared) + shape.board_size * sizeof(Signature);
    withdrawals = traffic + uint64_t(shape.board_size) * sizeof(Traffic) * shape.size;
    region_bytes = (withdrawals + sizeof(Withdrawal) * shape.size + 63) & ~uint64_t(63);
    if (!shape.copies) return;
    offers = region_bytes;
    region_bytes += sizeof(CopyOffer) * kCopyDepth * shape.size;
  }

  // Writes all that does not depend on where the connectors lie.
  void describe(LaneShared& shared, const LaneShape& shape) const {
    shared.size = shape.size;
    shared.channel_count = shape.channels;
    shared.private_slots = shape.private_slots;
    shared.slot_bytes = shape.slot_bytes;
    shared.board_size = shape.board_size;
    shared.inbox_offset = 0;
    shared.credit_offset = credit;
    shared.slots_offset = slots;
    shared.packets_offset = packets;
    shared.traffic_offset = traffic;
    shared.withdrawals_offset = withdrawals;
    shared.offers_offset = offers;
  }
};

inline Signature* board_of(LaneShared* shared) { return reinterpret_cast<Signature*>(shared + 1); }
// [size], of one position of the board.
inline Traffic* traffic_of(LaneShared* shared, uint64_t sequence) {
  auto* base = reinterpret_cast<std::byte*>(shared) + shared->traffic_offset;
  return reinterpret_cast<Traffic*>(base) + (sequence % shared->board_size) * shared->size;
}
// [size]: what each peer has said to the owner of the region.
inline Withdrawal* withdrawals_of(LaneShared* shared) {
  return reinterpret_cast<Withdrawal*>(reinterpret_cast<std::byte*>(shared) + shared->withdrawals_offset);
}
// Of what `sender` sends to the region's owner at this position.
inline CopyOffer* offer_of(LaneShared* shared, uint64_t sequence, uint32_t sender) {
  auto* base = reinterpret_cast<std::byte*>(shared) + shared->offers_offset;
  return reinterpret_cast<CopyOffer*>(base) + (sequence % kCopyDepth) * shared->size + sender;
}

}  // namespace starling
