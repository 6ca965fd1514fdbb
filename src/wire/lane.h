// A lane as the daemon sees it: the ring of operations, the ends of its connectors, and the dynamic context
// of each block. One per lane and rank, in the rank's own memory; counters shared with peers are in
// wire/connector.h, what hosts share in wire/arena.h.
#pragma once
#include <cstdint>

#include "base/portable.h"
#include "wire/connector.h"
#include "wire/handover.h"
#include "wire/operation.h"

namespace starling {

// Operations of a lane on the device; the host keeps the rest. On GPUs programs run far ahead of their
// streams, and an operation without a place cannot start as a kernel. At most 64 (LaneBlock::pending).
inline constexpr uint32_t kLaneDepth = 8;
inline constexpr uint32_t kGpuLaneDepth = 64;

// DFCCL's dynamic context: all that a block needs to go on where it stopped.
struct alignas(16) DynamicContext {
  uint64_t sequence;     // operation that this context belongs to
  uint64_t tile;
  uint32_t instruction;
  uint32_t started;      // 1: connectors are prepared for this operation
  uint64_t steps;        // instructions finished in this operation; to see whether it progressed
};
static_assert(sizeof(DynamicContext) == 32);

// A block's part of a lane. Who owns the part writes `context` and `progress` (wire/handover.h; without start
// kernels it is always the daemon's block), the daemon's block the rest.
struct alignas(64) LaneBlock {
  DynamicContext context;
  uint64_t next;         // sequence of the lane's next operation for this block
  uint64_t fetched;      // one past the last sequence seen in the submission ring
  uint64_t pending;      // bit s % 64: operation s is for this block and not finished
  uint64_t progress;     // operation << 40 | steps: what other blocks wait on (kHasDependents)
};
static_assert(sizeof(LaneBlock) == 64);

struct Lane {
  Doorbell* doorbell;              // of this rank's own daemon
  uint64_t* fault;                 // non-zero: the lane is broken; writer: any host, once (wire/arena.h)
  uint32_t id;
  uint32_t peer_count;             // ranks of the group
  uint32_t rank;
  uint32_t channel_count;
  uint32_t private_slots;
  uint32_t slot_bytes;             // of a private slot; a tile's message never needs more
  uint32_t pool_slot_bytes;        // of a pool slot; 0: this lane's messages do not fit in one
  uint32_t packet_bytes;           // data of a packet message, at most; a packet slot is twice as large
  SendEnd* sends;                  // [peer * channel_count + channel]
  ReceiveEnd* receives;            // likewise
  const Credit* credits;           // likewise, what peers of this host grant us; in this rank's memory
  const PeerIntroduction* introductions;  // likewise, in the host's memory
  LaneBlock* blocks;               // [daemon's grid]
  Operation*
      operations;  // [depth], operation s at s % depth; writer: host, before the submission; or, where
                   // the host cannot store there, the relay that reads `submitted` (machine/cuda/relay.cuh)
  uint64_t* finished;  // [depth]: blocks that finished s, all added up; writers: blocks, atomically
  Handover* handover;  // null: all its operations come through the submission queue
  const Operation* submitted;  // [depth] in the host's memory; null where the daemon works on that
  GroupExtent*
      tables;  // [depth * 2 * peer_count]: copies of the tables of extents that `submitted` points to
};

}  // namespace starling
