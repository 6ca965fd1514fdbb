// Submission and completion entries (DFCCL §5). The operation itself waits in its lane (wire/lane.h); an
// entry is the doorbell that says so, and gives the order of arrival.
#pragma once
#include <cstdint>

#include "base/portable.h"

namespace starling {

struct Submission {
  uint32_t lane;
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

// Ring with one producer (the host, under its submission lock) and one consumer counter a block. A slot is
// free when every block has passed it; counters never reset.
struct SubmissionRing {
  static constexpr uint32_t kMaxBlocks = 64;
  alignas(64) uint64_t tail;  // writer: host (release; blocks acquire)
  alignas(64) uint64_t head[kMaxBlocks][8];  // head[b][0]: writer block b; one line each
  uint64_t capacity;          // power of two
  Submission* entries;
};

}  // namespace starling
