// What travels over one TCP connection of a path (link/tcp): first a hello, then frames in both directions.
//
//   frame    FrameHeader | control bytes | payload
//
// From a flow's sender: transfers and messages. To it: messages. A message is a frame whose control bytes are
// a LinkMessage, and perhaps ArrivalAges behind it. A transfer's control bytes are records (wire/carried.h),
// its payload goes where `place` says. Little-endian, like all of wire/.
#pragma once
#include <cstdint>

#include "wire/queue_pairs.h"

namespace starling {

inline constexpr uint64_t kHelloMagic = 0x35304b4e494c5453;  // "STLINK05"

// Who calls, and for what: the first bytes of a connection.
struct Hello {
  uint64_t magic;
  uint64_t from;  // identities of the two ranks: hashes of their segments' names
  uint64_t to;
  uint32_t path;
  uint32_t path_count;
  uint32_t incarnation;
  uint32_t policy;  // link::Policy: both ends begin with the same paths
  QueuePairs queue_pairs;  // if there are any, the first bytes of the answer are the receiver's
};
static_assert(sizeof(Hello) == 120);

enum class FrameKind : uint32_t { kTransfer = 1, kMessage = 2 };

// Where the payload of a transfer is.
enum class Placed : uint64_t {
  kInFrame = 0,
  kInSlot = 1,  // the sender has written it into the slot that `place` names
  kAsOffered = 2,  // into the buffer that its message was offered (wire/carried.h, OfferRecord)
};

struct FrameHeader {
  FrameKind kind;
  uint32_t epoch;  // of a transfer
  uint64_t sequence;
  uint32_t control_bytes;
  uint32_t payload_bytes;
  uint64_t place[2];
  Placed placed;
};
static_assert(sizeof(FrameHeader) == 48);

inline constexpr uint32_t kMostControlBytes = 1 << 16;  // of one transfer

}  // namespace starling
