// A plan as the interpreter reads it: the part of one rank, flat, position independent, shared by
// host and device, file and memory. GC3 §4 calls this GC3-IR; docs/WIRE.md has the picture.
//
//   PlanHeader | BlockPlan[block_count] | Connection[...] | Instruction[...] | Dependency[...]
//
// Units. A buffer is `groups` groups (ranks' parts in all_gather, reduce_scatter, all_to_all; else one),
// each cut into `chunks_per_group` chunks; chunk c belongs to group c / chunks_per_group. Operands are
// chunk indices; bytes are known only when an operation binds the plan (wire/operation.h, Geometry).
//
// Tiles. An operation runs the whole instruction list once per tile: tile t of an instruction is bytes
// [t * tile, (t + 1) * tile) of each chunk of its slice. One instruction on one non-empty tile is one message
// on each of its connections, with chunk k's part at k * tile; an empty tile sends no message on either side.
// A plan may say how large a tile is at most: smaller ones overlap more, and cost more steps.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/portable.h"
#include "wire/opcodes.h"
#include "wire/types.h"

namespace starling {

inline constexpr uint32_t kPlanMagic = 0x4e4c5053;  // "SPLN"
inline constexpr uint16_t kPlanVersion = 1;
inline constexpr uint32_t kMaxFan = 15;  // connections that one instruction reads, or writes, at most
inline constexpr uint16_t kNoConnection = 0xffff;
// The largest tile of plans whose scratch is of tiles.
inline constexpr uint32_t kTileScratchBytes = 512 << 10;

// How the messages of a plan travel. Every instruction means the same whatever the protocol.
enum class Protocol : uint8_t {
  kSlots = 0,  // bytes in the receiver's slots, then a counter
  kPackets = 1,  // flags in the data: no counter, no release on the way (device/packets.h)
  kPull = 2,  // a message is the address of the sender's slice; the receiver reads it there, and gives
              // credit when it has. Sender and receiver address each other's memory
};
inline constexpr uint32_t kProtocolCount = 3;

enum class BufferKind : uint8_t { kNone = 0, kInput = 1, kOutput = 2, kScratch = 3 };

// Flags of an instruction.
enum : uint8_t {
  kHasDependents = 1,  // other blocks wait for it: publish progress when it is done
  kFinal = 2,  // its result is a final value: avg divides here
  kPut = 4,  // its messages are put: written by the sender into the slice where their receivers want them; of
             // recv that which it receives, of any other that which it sends
};

struct Instruction {
  Opcode opcode;
  uint8_t flags;
  BufferKind source_buffer;
  BufferKind destination_buffer;
  uint32_t source_chunk;
  uint32_t destination_chunk;
  uint32_t size_chunk;  // chunk of `size_buffer` whose length is the length of this instruction's slice
  BufferKind size_buffer;
  uint8_t local_position;  // how many received operands come before the local one in a reduction
  uint16_t chunks;  // contiguous chunks, 1 or more
  uint16_t receive_first;  // index into the block's connections, kNoConnection if none
  uint16_t send_first;  // likewise
  uint8_t receive_count;  // fan-in: this many consecutive connections, in order of reduction
  uint8_t send_count;  // fan-out
  uint16_t dependency_count;  // entries of the dependency table to wait for, per tile
  uint32_t dependency_first;
};
static_assert(sizeof(Instruction) == 32);

// One direction of one connection of a block. Both ends name it alike: (lane, source, destination, channel).
struct Connection {
  uint16_t peer;
  uint16_t channel;
};
static_assert(sizeof(Connection) == 4);

// Wait until `block` has finished instruction `instruction` of the same tile.
struct Dependency {
  uint32_t block;
  uint32_t instruction;
};
static_assert(sizeof(Dependency) == 8);

struct BlockPlan {
  uint32_t instruction_first;
  uint32_t instruction_count;
  uint32_t receive_first;  // connections it receives from: index into the connection table
  uint16_t receive_count;
  uint16_t send_count;
  uint32_t send_first;
  uint32_t reserved;
};
static_assert(sizeof(BlockPlan) == 24);

struct PlanHeader {
  uint32_t magic;
  uint16_t version;
  Collective collective;
  uint8_t in_place;  // 1: written for input and output that are one buffer
  uint16_t rank;
  uint16_t rank_count;
  uint16_t block_count;
  uint16_t channel_count;  // over all ranks: channels are 0 .. channel_count-1
  uint32_t chunks_per_group;
  uint32_t input_groups;  // groups are alike on every rank, also where a rank has no such buffer
  uint32_t output_groups;
  uint32_t scratch_chunks;  // each as large as the largest chunk, or as tiles (tile_scratch)
  uint32_t connection_count;
  uint32_t instruction_count;
  uint32_t dependency_count;
  uint16_t minimum_slots;  // messages in flight per connection without which it would deadlock
  uint16_t largest_chunks;  // largest Instruction::chunks: a tile of that many chunks fits in a slot
  uint8_t canonical;  // 1: channel c is used by block c alone, on every rank, and blocks share nothing:
                      // no dependencies, no scratch but tile_scratch (see Operation::fence_previous)
  uint8_t uniform_only;  // 1: right only if all groups are equally long; not for the v-variants
  uint16_t root;  // broadcast, reduce, gather, scatter; else 0
  Protocol protocol;
  uint8_t tile_scratch;  // of protocol pull, if each chunk of scratch is one block's, which writes it anew in
                         // every tile: it has room for so many, which have it in turn, and whose places
                         // can be lent ahead: 2 or 1 by their number; 0: for the whole chunk
  uint8_t reserved[2];
  uint32_t total_bytes;  // of header and tables
  uint32_t tile_bytes;  // of a chunk, in one tile, at most: a multiple of 16; 0: as many as can be
  uint64_t hash;  // of the whole plan over all ranks: equal on every rank
};
static_assert(sizeof(PlanHeader) == 72);

// Bytes of a chunk in one tile, where a message has room for `message_bytes`. With protocol pull a message is
// an address: there a plan may ask for more than the machine takes by itself.
inline uint64_t tile_bytes_of(const PlanHeader& plan, uint64_t message_bytes) {
  const uint64_t chunks = plan.largest_chunks == 0 ? 1 : plan.largest_chunks;
  uint64_t fits = (message_bytes / chunks) & ~uint64_t(15);
  if (plan.tile_scratch != 0) {
    fits = fits < kTileScratchBytes ? fits : kTileScratchBytes;
    return plan.tile_bytes != 0 && plan.tile_bytes < fits ? plan.tile_bytes : fits;
  }
  if (plan.tile_bytes == 0) return fits;
  return plan.protocol == Protocol::kPull || plan.tile_bytes < fits ? plan.tile_bytes : fits;
}

// Where the tables of a plan lie, in bytes from its header's begin, and how long it is: by its counts.
STARLING_HOST_DEVICE inline uint64_t connections_at(const PlanHeader& plan) {
  return sizeof(PlanHeader) + plan.block_count * sizeof(BlockPlan);
}
STARLING_HOST_DEVICE inline uint64_t instructions_at(const PlanHeader& plan) {
  // 72 + 24 b + 4 c may be 4 modulo 8: the connection table is padded to an even count.
  return connections_at(plan) + ((uint64_t(plan.connection_count) + 1) & ~uint64_t(1)) * sizeof(Connection);
}
STARLING_HOST_DEVICE inline uint64_t dependencies_at(const PlanHeader& plan) {
  return instructions_at(plan) + plan.instruction_count * sizeof(Instruction);
}
STARLING_HOST_DEVICE inline uint64_t bytes_of(const PlanHeader& plan) {
  return dependencies_at(plan) + plan.dependency_count * sizeof(Dependency);
}

// Read-only view of a rank's plan in memory.
struct PlanView {
  const PlanHeader* header;
  STARLING_HOST_DEVICE const BlockPlan* blocks() const { return table<BlockPlan>(sizeof(PlanHeader)); }
  STARLING_HOST_DEVICE const Connection* connections() const {
    return table<Connection>(connections_at(*header));
  }
  STARLING_HOST_DEVICE const Instruction* instructions() const {
    return table<Instruction>(instructions_at(*header));
  }
  STARLING_HOST_DEVICE const Dependency* dependencies() const {
    return table<Dependency>(dependencies_at(*header));
  }

 private:
  template <class T>
  STARLING_HOST_DEVICE const T* table(uint64_t at) const {
    return reinterpret_cast<const T*>(reinterpret_cast<const std::byte*>(header) + at);
  }
};

}  // namespace starling
