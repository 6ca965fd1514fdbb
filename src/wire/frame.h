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

inline constexpr uint64_t kHelloMagic = 0x33304b4e494c5453;  // "STLINK03"

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
static_assert(sizeof(Hello) == 104);

enum class FrameKind : uint32_t { kTransfer = 1, kMessage = 2 };

struct FrameHeader {
  FrameKind kind;
  uint32_t epoch;  // of a transfer
  uint64_t sequence;
  uint32_t control_bytes;
  uint32_t payload_bytes;
  uint64_t place[2];
  uint64_t placed;  // 1: the payload was written where it goes; it is not in the frame
};
static_assert(sizeof(FrameHeader) == 48);

inline constexpr uint32_t kMostControlBytes = 1 << 16;  // of one transfer

}  // namespace starling
