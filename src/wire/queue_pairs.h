// How one end of a path finds the other's queue pairs: exchanged over the path's own socket (wire/frame.h)
// each time that the path is opened, so that an address that changed meanwhile is just a new one.
#pragma once
#include <cstdint>

namespace starling {

inline constexpr uint32_t kMaxQueuePairs = 4;  // of a path
inline constexpr uint32_t kMaxRdmaDevices = 8;  // of a rank, that its memory is registered with: one a path

// What a peer needs to write into memory of this rank by RDMA: a key for each device of this rank that it may
// come by. 0: not by that one.
struct RemoteKeys {
  uint32_t of[kMaxRdmaDevices];
};

// Of the flow's sender in its hello; of the receiver as the first bytes that it answers.
struct QueuePairs {
  uint32_t count;  // 0: none, the path stays a socket
  uint32_t numbers[kMaxQueuePairs];
  uint32_t first_packet;  // number of the first packet that comes from here
  uint8_t gid[16];  // address of the port, in network order
  uint16_t lid;
  uint16_t mtu;  // as verbs count it (enum ibv_mtu)
  // Of the receiver: where frames go (link/verbs/frame_ring.h).
  uint32_t ring_key;
  uint64_t ring_address;  // of the first one's, the others behind it
  uint32_t ring_bytes;  // of each
  uint32_t most_frame_bytes;
  // Of the receiver: which of its keys are good here (RemoteKeys), and how many of its offers are not: those
  // before this number were taken back (OfferRecord).
  uint32_t device;
  uint32_t gave_up;  // of the receiver: 1: its link broke, and all that follows is its last word
  uint64_t offers_void;
};
static_assert(sizeof(QueuePairs) == 80);

}  // namespace starling
