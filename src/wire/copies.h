// Messages that a copy engine moves (docs/design/0020-sm-free.md): what a receiver's host and its sender's
// host tell each other, in the receiver's region, one a sender and position of the lane.
//
//   receiver's proxy          sender's proxy
//   offered = s + 1 ────────▶ copies, on its GPU's copy engine
//                             sees that the copy has ended
//   is through with it ◀───── arrived = s + 1
//
// A place is used again by operation s + kCopyDepth, which its rank begins after operation s has ended there.
#pragma once
#include <cstdint>

namespace starling {

// Operations of a lane of copies that are with the proxy; the host keeps the rest.
inline constexpr uint32_t kCopyDepth = 64;

struct alignas(64) CopyOffer {
  uint64_t offered;  // s + 1: the receiver's stream has come to operation s, and its buffer is as below.
                     // Writer: the receiver's proxy, last (release)
  uint64_t address;  // in the receiver's process
  uint64_t registration;  // of the allocation it is in (wire/registration.h); 0: none is needed
  uint64_t bytes;
  uint64_t arrived;  // s + 1: they are there. Writer: the sender's proxy, after the copy has ended (release)
  uint64_t came;  // of a message in several pieces, until it has arrived: those that are there, as
                  // pieces_came(). Writer: the sender's proxy, after their copies have ended (release)
  uint64_t reserved[2];
};
static_assert(sizeof(CopyOffer) == 64);

inline constexpr uint32_t kPieceBits = 8;
inline constexpr uint32_t kMaxPieces = (1u << kPieceBits) - 1;

// So many of operation `sequence`, in one word.
constexpr uint64_t pieces_came(uint64_t sequence, uint32_t pieces) {
  return (sequence + 1) << kPieceBits | pieces;
}

}  // namespace starling
