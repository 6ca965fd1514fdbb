// Submission entries (DFCCL §5). The operation itself waits in its lane (wire/lane.h); an entry is the
// doorbell that says so, and gives the order of arrival.
#pragma once
#include <cstdint>

#include "base/portable.h"

namespace starling {

struct Submission {
  uint32_t lane;           // below 2^16
  int16_t priority;        // larger runs earlier, under the priority order
  uint8_t block_count;     // blocks that take part; 0: exiting submission, the daemon leaves for good,
                           // or a returned slot
  uint8_t marked;          // 1: starts only after the stream's mark (wire/handover.h)
  uint64_t sequence;       // of the operation in its lane
};
static_assert(sizeof(Submission) == 16);

// Without blocks and with a sequence: a slot of a broken lane comes back. `lane` is its grant, sequence - 1
// the block whose pool it belongs to.
STARLING_HOST_DEVICE inline bool returns_slot(const Submission& s) {
  return s.block_count == 0 && s.sequence != 0;
}

// Ring with one producer (the host, under its submission lock), read to its end by every block. An entry is
// one word, so that a look at it over PCIe is the whole of a poll:
//
//   63   56  55    54    48 47      32 31    16 15        0
//   | lap  | marked | blocks | priority | lane   | sequence |
//
// The lap says whether the entry is the one of this position or the one before it; the sequence's low 16 bits
// are enough, since a block knows where a lane is, about. An entry is free when every block has passed it.
struct SubmissionRing {
  static constexpr uint32_t kMaxBlocks = 64;
  static constexpr uint32_t kHeadStride = 8;  // a line a block
  uint64_t capacity;  // power of two, 2^16 at most
  uint64_t* entries;  // [capacity], zero at first; writer: host (release; blocks acquire)
  uint64_t* heads;  // [block * kHeadStride]: entries that the block has read; writer: the block
  uint64_t tail;  // entries pushed; the host's own
};

STARLING_HOST_DEVICE inline uint64_t submission_lap(uint64_t position, uint64_t capacity) {
  return (position / capacity + 1) << 56;
}

// A returned slot's grant needs more than 16 bits: the others go where the priority is.
inline uint64_t pack_submission(const Submission& s) {
  const uint64_t middle = s.block_count == 0 ? s.lane >> 16 : uint16_t(s.priority);
  return uint64_t(s.marked != 0) << 55 | uint64_t(s.block_count & 0x7f) << 48 | middle << 32 |
         uint64_t(s.lane & 0xffff) << 16 | (s.sequence & 0xffff);
}

// The sequence's low bits alone: wire/lane.h, LaneBlock::fetched, has the rest.
STARLING_HOST_DEVICE inline Submission unpack_submission(uint64_t entry) {
  const auto block_count = uint8_t((entry >> 48) & 0x7f);
  const uint32_t lane = uint32_t(entry >> 16) & (block_count == 0 ? ~0u : 0xffff);
  return {lane, int16_t(entry >> 32), block_count, uint8_t((entry >> 55) & 1), entry & 0xffff};
}

// The sequence nearest to `from` that ends in the 16 bits `low`.
STARLING_HOST_DEVICE inline uint64_t whole_sequence(uint64_t from, uint64_t low) {
  return from + uint64_t(int64_t(int16_t(uint16_t(low - from))));
}

}  // namespace starling
