// What is wrong with what a peer's proxy says of lanes: in words for the link's error; null: nothing. What
// comes is then as an honest proxy of this version could have said it, as far as anything here is read,
// written, divided or allocated by it.
#pragma once
#include <cstdint>

#include "link/carry/channels.h"
#include "wire/carried.h"

namespace starling::link::carry {

// In the `rest` bytes that begin with its header.
inline const char* wrong_with(const RecordHeader& record, uint64_t rest) {
  if (!is_known(record.kind)) return "a record of an unknown kind";
  if (!is_whole(record, rest) || record.bytes % 8 != 0) return "a record that is cut";
  return nullptr;
}

inline const char* wrong_with(const OpenRecord& lane) {
  if (lane.size > kMostLaneRanks || lane.rank >= lane.size || lane.hearer >= lane.size ||
      lane.rank == lane.hearer)
    return "a lane of ranks that cannot be";
  if (lane.board_size == 0 || lane.board_size > kMostBoardSize) return "a lane with a board of no such size";
  if (lane.channel_count > kMostLaneChannels) return "a lane of more channels than there are";
  if (lane.private_slots == 0 || lane.private_slots > kMaxCredits || lane.slot_bytes > kNamedSlotBytes ||
      lane.packet_bytes > kNamedSlotBytes || lane.slots_on_device > 1)
    return "a lane of slots that cannot be";
  return nullptr;
}

inline const char* wrong_with(const SlotsRecord& slots, const OpenRecord& lane) {
  const uint64_t bytes = uint64_t(lane.channel_count) * lane.private_slots * lane.slot_bytes;
  return slots.address > ~uint64_t(0) - bytes ? "slots beyond all memory" : nullptr;
}

inline const char* wrong_with(const BoardRecord& board) {
  return board.signature.position == 0 ? "a board without a position" : nullptr;
}

// Lanes of one key are one lane. Ours pairs with one of the same ranks, seen from the other end.
inline bool may_pair(const OpenRecord& ours, const OpenRecord& theirs) {
  if (ours.key_low != theirs.key_low || ours.key_high != theirs.key_high) return true;
  return ours.size == theirs.size && ours.rank == theirs.hearer && ours.hearer == theirs.rank;
}
inline constexpr const char* kNotLikeOurs = "a lane of other ranks than ours of its name";

// `granted` is what we know, `posted` how many messages our blocks have: no slot is free again before.
inline const char* wrong_with(const GrantsRecord& grants, const ChannelShape& shape, uint64_t granted,
                              uint64_t posted) {
  if (grants.count > kMaxCredits) return "more grants than there are";
  for (uint32_t k = 0; k < grants.count; ++k)
    if (grants.grants[k] >= shape.slots) return "a grant of a slot that is not there";
  if (grants.granted != granted + grants.count || grants.granted - shape.slots > posted)
    return "grants of messages that were never sent";
  return nullptr;
}

// last: number of the offer before.
inline const char* wrong_with(const OfferRecord& offer, uint64_t last) {
  const bool possible = offer.number > last && offer.messages > 0 &&
                        offer.first + offer.messages > offer.first &&
                        offer.address <= ~uint64_t(0) - offer.bytes &&
                        offer.message_bytes <= kNamedSlotBytes && offer.messages <= kMostOffered;
  return possible ? nullptr : "an offer that cannot be";
}

// Where the message of a transfer goes, in a channel that is there. granted: messages before this one may
// come; posted: those before it came whole.
inline const char* wrong_with(const MessagePlace& place, uint32_t bytes, const ChannelShape& shape,
                              uint64_t posted, uint64_t granted) {
  const uint64_t at = uint64_t(place.piece & ~kLastPiece) * kCarriedSlotBytes;
  if (place.slot >= shape.slots || at + bytes > shape.slot_bytes) return "a message beyond its slot";
  if (place.message - uint32_t(posted) >= granted - posted) return "a message without a grant";
  return nullptr;
}

}  // namespace starling::link::carry
