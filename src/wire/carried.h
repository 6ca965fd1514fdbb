// Records: what proxies tell each other of their ranks' segments, beside the messages of connectors. They
// travel in a transfer's control bytes, in order, each once (link/flow.h).
//
//   record   RecordHeader | body | padding to 8 bytes
//
// A lane is named by the number that the owner of the region gave it: `lane` of records about the teller's
// own region is the teller's number, of records about what was written into the hearer's region the hearer's.
#pragma once
#include <cstdint>

#include "wire/arena.h"
#include "wire/queue_pairs.h"

namespace starling {

// Slots of connectors between hosts are not larger, and no transfer has more of a message. None is of a pool.
inline constexpr uint32_t kCarriedSlotBytes = 1 << 18;
// But for lanes of messages between CPUs: messages of so many bytes and more go in messages of a connector of
// this length, which mostly touch no slot (comm/named_messages.cc).
inline constexpr uint32_t kNamedSlotBytes = 1 << 20;
inline constexpr uint64_t kNamedBytes = 2 << 20;

// What a proxy takes from another one at most, of each lane: places in a lane, and channels, are 16 bits wide
// (wire/connector.h). With it no product of these numbers wraps.
inline constexpr uint32_t kMostLaneRanks = 1 << 16;
inline constexpr uint32_t kMostLaneChannels = 1 << 16;
inline constexpr uint32_t kMostBoardSize = 1 << 20;
inline constexpr uint64_t kMostOffered = uint64_t(1) << 40;  // messages, by one offer

enum class RecordKind : uint32_t {
  // Of the teller's region.
  kOpen = 1,  // it is there
  kUnpublished,  // its directory knows it no more
  kGone,  // it is used for something else from now on
  kBoard,  // a signature, and what goes with it
  kSubmitted,
  kBroken,  // its fault
  kSlots,  // where its arriving slots lie
  // Of the hearer's region, what the teller wrote there.
  kGrants = 16,
  kFault,
  kMet,
  kOut,
  kClosed,
  kOffer,  // where its messages are wanted
  // Of the teller.
  kWaiting = 32,
  kLeft,
};

struct RecordHeader {
  RecordKind kind;
  uint32_t bytes;  // of the record, header and padding included
  uint32_t lane;
  uint32_t reserved;
};
static_assert(sizeof(RecordHeader) == 16);

struct OpenRecord {
  uint64_t key_low;
  uint64_t key_high;
  uint32_t size;
  uint32_t rank;  // the teller's in the lane
  uint32_t hearer;  // the hearer's
  uint32_t channel_count;
  uint32_t private_slots;
  uint32_t slot_bytes;
  uint32_t packet_bytes;
  uint32_t board_size;
  uint32_t slots_on_device;  // 1: no host may touch them; a message waits for the kSlots record and is
                             // written there
  uint32_t reserved;
};
static_assert(sizeof(OpenRecord) == 56);

struct BoardRecord {
  Signature signature;  // with its position
  Traffic traffic;  // between teller and hearer
  uint64_t submitted;
};
static_assert(sizeof(BoardRecord) == 88);

struct FaultRecord {
  uint64_t kind;
  FaultNote note;
};

struct GrantsRecord {
  uint64_t granted;  // the counter's new value
  uint32_t channel;
  uint32_t count;  // new grants
  uint32_t grants[kMaxCredits];  // granted - count is first
};
static_assert(sizeof(GrantsRecord) == 48);

// Of all channels of the lane, one behind the other: a peer may write there by RDMA what it was granted.
struct SlotsRecord {
  uint64_t address;
  RemoteKeys keys;
};
static_assert(sizeof(SlotsRecord) == 40);

// As Landing (link/carry/peer_link.h): messages `first` and so many more of a channel of the hearer's may be
// written there by RDMA.
struct OfferRecord {
  uint64_t number;  // of all that the teller makes, from 1 on
  uint64_t first;
  uint64_t messages;
  uint64_t address;
  uint64_t message_bytes;  // of each but the last one
  uint64_t bytes;  // of all
  RemoteKeys keys;
  uint32_t channel;
  uint32_t reserved;
};
static_assert(sizeof(OfferRecord) == 88);

struct WordRecord {
  uint64_t value;
};

struct WaitingRecord {
  char text[sizeof(ArenaHeader::waiting_text)];
};

constexpr bool is_known(RecordKind kind) {
  return (kind >= RecordKind::kOpen && kind <= RecordKind::kSlots) ||
         (kind >= RecordKind::kGrants && kind <= RecordKind::kOffer) || kind == RecordKind::kWaiting ||
         kind == RecordKind::kLeft;
}

// What is read behind the header of a record; of a kind that is not known nothing is.
constexpr uint32_t body_bytes(RecordKind kind) {
  switch (kind) {
    case RecordKind::kOpen: return sizeof(OpenRecord);
    case RecordKind::kBoard: return sizeof(BoardRecord);
    case RecordKind::kBroken:
    case RecordKind::kFault: return sizeof(FaultRecord);
    case RecordKind::kSlots: return sizeof(SlotsRecord);
    case RecordKind::kGrants: return sizeof(GrantsRecord);
    case RecordKind::kOffer: return sizeof(OfferRecord);
    case RecordKind::kWaiting: return sizeof(WaitingRecord);
    case RecordKind::kSubmitted:
    case RecordKind::kMet: return sizeof(WordRecord);
    default: return 0;
  }
}
// In the `rest` bytes that begin with its header.
constexpr bool is_whole(const RecordHeader& record, uint64_t rest) {
  return record.bytes <= rest && record.bytes >= sizeof record + body_bytes(record.kind);
}

// FrameHeader::place of a connector's message.
struct MessagePlace {
  uint32_t lane;  // the hearer's number
  uint32_t channel;
  uint16_t slot;  // as granted
  uint16_t piece;  // of kCarriedSlotBytes each; with kLastPiece the message is whole
  uint32_t message;  // low bits of its number
};
inline constexpr uint16_t kLastPiece = 1 << 15;
static_assert(sizeof(MessagePlace) == 16);

// ---- of a proxy's own (device/carrying.h) ----------------------------------------------------------------

// One side of one connector, in memory that blocks and proxy share.
struct CarriedHalf {
  Inbox* inbox;
  Credit* credit;
};

// Of one connector: counts of messages and grants that were told to the peer's proxy, and that were seen
// last.
struct Carried {
  uint64_t posted;
  uint64_t granted;
  uint64_t posted_seen;
  uint64_t granted_seen;

  bool has_message() const { return posted < posted_seen; }
  bool has_grants() const { return granted != granted_seen; }
};

struct CarriedMessage {
  uint64_t number;
  uint32_t slot;
  uint32_t bytes;
};

}  // namespace starling
