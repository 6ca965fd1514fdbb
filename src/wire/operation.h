// One operation bound to a plan: DFCCL's static context. The host writes it, the daemon reads it.
#pragma once
#include <cstdint>

#include "base/portable.h"
#include "wire/plan.h"
#include "wire/types.h"

namespace starling {

// Where a group lies in its buffer. Only the v-variants have a table of these.
struct GroupExtent {
  uint64_t offset_bytes;
  uint64_t bytes;
};
static_assert(sizeof(GroupExtent) == 16);

struct BufferBinding {
  std::byte* base;
  const GroupExtent* groups;  // null: every group has Operation::group_bytes, one after the other
};
static_assert(sizeof(BufferBinding) == 16);

// Operation::hints: its buffers are larger than the caches. What it writes there is not read again soon.
inline constexpr uint16_t kPastCaches = 1;
// Its output, or an input that peers read, is not in the memory of the device itself: what is stored there is
// there after a fence of the whole system.
inline constexpr uint16_t kElsewhereInMemory = 2;
// What it sends to another host out of its input goes from there: no slot has it (is_by_reference()).
inline constexpr uint16_t kByReference = 4;
// Its messages may have come into its output already (Inbox::bytes).
inline constexpr uint16_t kInPlace = 8;
// Likewise what it writes to its output and sends.
inline constexpr uint16_t kOutputByReference = 16;

struct alignas(16) Operation {
  const PlanHeader* plan;
  uint64_t sequence;       // position in its lane, from 0
  BufferBinding buffers[4];  // indexed by BufferKind; kNone unused
  uint64_t group_bytes;    // of one group where the buffer has no table
  uint64_t chunk_bytes;    // a chunk of a uniform group (its last chunks may be shorter, or empty)
  uint64_t tile_bytes;     // of one chunk and one tile; times Instruction::chunks fits in a slot
  uint64_t tile_count;
  double scalar;           // premul_sum: the factor
  DataType data_type;
  ReduceOp reduce_op;
  uint8_t block_count;     // of the plan: blocks beyond it have no part in the operation
  uint8_t fence_previous;  // 1: no block begins before all blocks have finished the lane's previous one
  uint16_t rank_count;     // divisor of avg
  uint16_t hints;          // how data is moved, not what; ranks may differ: bits above
  uint64_t token;          // names the operation in the completion queue; 0: it began as a kernel, and its
                           // completion is told in Handover::done
  uint64_t finished_target;  // value of Lane::finished[] at which it is complete: block_count more than
                             // before, or Handover::width more, in a lane that streams use
  uint64_t previous_target;  // the same of the lane's previous operation, for fence_previous: its place in
                             // the ring may hold a later operation before the last block looks
  uint16_t registrations[4];  // indexed by BufferKind: what peers of other processes know the buffer by
                              // (wire/registration.h); 0: they are not told
  int64_t bounces[2];  // of kInput and kOutput: from the buffer to memory that peers can open, if they cannot
                       // open the buffer: what they read is copied there first; 0: they read the buffer
};
static_assert(sizeof(Operation) == 176);

// Operation::bounces of a buffer.
STARLING_HOST_DEVICE inline int64_t bounce_of(const Operation& op, BufferKind kind) {
  return kind == BufferKind::kInput ? op.bounces[0] : kind == BufferKind::kOutput ? op.bounces[1] : 0;
}

// First byte of chunk `chunk` (also one past the last chunk). Chunks of a group are rounded up to 16 bytes,
// so that tiles and messages stay aligned; the last ones take what is left.
STARLING_HOST_DEVICE inline uint64_t chunk_begin(const Operation& op, const BufferBinding& buffer,
                                                 BufferKind kind, uint32_t chunk) {
  const uint32_t per_group = op.plan->chunks_per_group;
  if (kind == BufferKind::kScratch)
    return chunk * (op.plan->tile_scratch != 0 ? op.plan->tile_scratch * op.tile_bytes : op.chunk_bytes);
  const uint32_t group = per_group == 1 ? chunk : chunk / per_group;
  const uint32_t inside = per_group == 1 ? 0 : chunk % per_group;
  if (buffer.groups == nullptr) {
    const uint64_t offset = uint64_t(inside) * op.chunk_bytes;
    return uint64_t(group) * op.group_bytes + (offset < op.group_bytes ? offset : op.group_bytes);
  }
  const GroupExtent extent = buffer.groups[group];
  // The same rounding as the host's chunk_bytes_of() for a uniform group.
  const uint64_t chunk_bytes = ((extent.bytes + per_group - 1) / per_group + 15) & ~uint64_t(15);
  const uint64_t offset = uint64_t(inside) * chunk_bytes;
  return extent.offset_bytes + (offset < extent.bytes ? offset : extent.bytes);
}

// Where in such a chunk a tile lies that begins `offset_bytes` into the others.
STARLING_HOST_DEVICE inline uint64_t tile_begin(const Operation& op, BufferKind kind, uint64_t offset_bytes) {
  const bool in_turn = kind == BufferKind::kScratch && op.plan->tile_scratch != 0;
  return in_turn ? offset_bytes % (op.plan->tile_scratch * op.tile_bytes) : offset_bytes;
}

// All the scratch that an operation's blocks have.
inline uint64_t scratch_bytes(const PlanHeader& plan, uint64_t chunk_bytes, uint64_t tile_bytes) {
  return plan.scratch_chunks * (plan.tile_scratch != 0 ? plan.tile_scratch * tile_bytes : chunk_bytes);
}

// Bytes of one chunk.
STARLING_HOST_DEVICE inline uint64_t chunk_length(const Operation& op, const BufferBinding& buffer,
                                                  BufferKind kind, uint32_t chunk) {
  if (kind == BufferKind::kScratch) return op.chunk_bytes;
  if (buffer.groups != nullptr) {
    // Groups of a table need not be adjacent: a chunk ends inside its own.
    const uint32_t per_group = op.plan->chunks_per_group;
    const GroupExtent own = buffer.groups[chunk / per_group];
    const uint32_t end = chunk + 1;
    const uint64_t stop =
        end % per_group == 0 ? own.offset_bytes + own.bytes : chunk_begin(op, buffer, kind, end);
    return stop - chunk_begin(op, buffer, kind, chunk);
  }
  return chunk_begin(op, buffer, kind, chunk + 1) - chunk_begin(op, buffer, kind, chunk);
}

// The part of one chunk of an instruction's slice that belongs to one tile.
struct TileRange {
  uint64_t offset_bytes;  // from the start of the chunk, in every operand
  uint64_t bytes;  // 0: nothing of the chunk is in this tile
};

STARLING_HOST_DEVICE inline TileRange tile_range(const Operation& op, const Instruction& i, uint32_t k,
                                                 uint64_t tile) {
  const uint64_t span =
      chunk_length(op, op.buffers[uint32_t(i.size_buffer)], i.size_buffer, i.size_chunk + k);
  const uint64_t begin = tile * op.tile_bytes;
  if (begin >= span) return {span, 0};
  const uint64_t left = span - begin;
  return {begin, left < op.tile_bytes ? left : op.tile_bytes};
}

// Do the hints speak of the instruction's messages? They do of those alone whose connections all lead to
// other hosts (comm/named_steps.h).
STARLING_HOST_DEVICE inline bool is_by_reference(uint16_t hints, const Instruction& i) {
  if (!sends(i.opcode) || i.chunks != 1) return false;
  if (writes_destination(i.opcode))
    return (hints & kOutputByReference) != 0 && i.destination_buffer == BufferKind::kOutput;
  return (hints & kByReference) != 0 && i.opcode == Opcode::send && i.source_buffer == BufferKind::kInput;
}

// Tiles in which the instruction has anything to do: as many messages go over each of its connections.
STARLING_HOST_DEVICE inline uint64_t message_count(const Operation& op, const Instruction& i) {
  uint64_t longest = 0;
  for (uint32_t k = 0; k < i.chunks; ++k) {
    const uint64_t span =
        chunk_length(op, op.buffers[uint32_t(i.size_buffer)], i.size_buffer, i.size_chunk + k);
    if (span > longest) longest = span;
  }
  return (longest + op.tile_bytes - 1) / op.tile_bytes;
}

}  // namespace starling
