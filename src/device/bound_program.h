// What a start kernel is told of an operation that comes bound (device/bind.h): of packets (device/bound.h),
// or of pulls (device/bound_pull.h).
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/portable.h"

namespace starling::device {

inline constexpr uint32_t kBoundInstructions = 16;
inline constexpr uint32_t kBoundEnds = 7;  // connections of a block one way: of eight ranks
inline constexpr uint32_t kBoundSources = kBoundEnds + 1;
inline constexpr uint8_t kNoLocal = 0xff;

// On block b: of `span` bytes those from b x `span_step` on, `chunk_bytes` of them at most, and some in each
// tile.
struct BoundInstruction {
  const std::byte* source;  // of block 0; null: it reads no local slice
  std::byte* destination;  // likewise: it writes none
  uint32_t source_step;  // from block to block, in bytes
  uint32_t destination_step;
  uint32_t span;
  uint32_t span_step;
  uint8_t source_count;  // messages, and the local slice; more than one: it reduces
  uint8_t local_at;  // how many messages come before the local slice; kNoLocal: there is none
  uint8_t receive_first;  // connection of the block
  uint8_t receive_count;
  uint8_t send_first;
  uint8_t send_count;
  uint8_t received_before;  // messages of the tile's earlier instructions, on each of its connections; of a
                            // pull: the bits below
  uint8_t sent_before;  // likewise; of a pull: the buffer that its messages name, or land in
};
static_assert(sizeof(BoundInstruction) == 40);

// BoundInstruction::received_before of a program of pulls.
inline constexpr uint8_t kBoundPut = 1;  // its messages are put (wire/plan.h)
inline constexpr uint8_t kBoundSourceOfTile = 2;  // its source is scratch, which tiles have in turn
inline constexpr uint8_t kBoundDestinationOfTile = 4;  // likewise
inline constexpr uint8_t kBoundFinal = 8;  // its result is divided
inline constexpr uint8_t kBoundLandsFirst = 16;  // before it begins a message lands on `receive_first` ...
inline constexpr uint8_t kBoundLandsInSource = 32;  // ... in its source; else in its destination
inline constexpr uint8_t kBoundPassesOn = 64;  // what its destination gets nobody reads: it is sent alone
inline constexpr uint8_t kBoundCopies = 128;  // the plan has a copy besides: before it, or of what it makes
STARLING_HOST_DEVICE inline bool is_put(const BoundInstruction& i) {
  return (i.received_before & kBoundPut) != 0;
}
// It waits for a message that its sender writes where it is wanted.
STARLING_HOST_DEVICE inline bool lands(const BoundInstruction& i) { return is_put(i) && i.send_count == 0; }
// It does so before it sends that on: two of the plan's instructions.
STARLING_HOST_DEVICE inline bool lands_first(const BoundInstruction& i) {
  return (i.received_before & kBoundLandsFirst) != 0;
}
// Its destination is the first of what it reduces.
STARLING_HOST_DEVICE inline bool reduces_into(const BoundInstruction& i) {
  return i.source_count == 2 && i.receive_count == 0;
}
STARLING_HOST_DEVICE inline bool keeps(const BoundInstruction& i) {
  return i.destination != nullptr && (i.received_before & kBoundPassesOn) == 0;
}
// What lands there lands in its source.
STARLING_HOST_DEVICE inline bool lands_in_source(const BoundInstruction& i) {
  return (i.received_before & kBoundLandsInSource) != 0;
}

// So many instructions of the plan it is.
STARLING_HOST_DEVICE inline uint32_t planned(const BoundInstruction& i) {
  return 1u + lands_first(i) + ((i.received_before & kBoundCopies) != 0);
}

struct BoundProgram {
  uint32_t count;  // of instructions; 0: there is none
  uint32_t chunk_bytes;
  uint32_t tile_bytes;
  uint32_t tile_count;
  uint32_t leading;  // so many instructions come first that wait for nothing, and run a tile ahead
  uint8_t receive_count;  // connections of a block; their channel is the block's number
  uint8_t send_count;
  uint8_t reduced;  // sources of the instructions that reduce, all as many
  uint8_t divisor;  // of their results; 1: not
  uint8_t pulls;  // 1: protocol pull (device/bound_pull.h)
  uint8_t heads;  // so many instructions come first that wait for nothing, and of which none reads what one
                  // of them writes; of pulls: nor do two of them tell the same connection anything
  uint8_t tails;  // so many come last that only receive, a message each; of pulls: each on its own
                  // connection, into memory of its own
  uint8_t landings;  // so many receive what is put
  uint8_t lends_ahead;  // so many tiles ahead their places are lent
  uint8_t scratch_tiles;  // that have scratch in turn (PlanHeader::tile_scratch)
  uint8_t planned;  // instructions of the plan
  uint8_t apart;  // n + 1: instruction n sums up what lands in its source and `added`, into its destination;
                  // 0: none
  uint16_t receive_peers[kBoundEnds];
  uint16_t send_peers[kBoundEnds];
  uint8_t received[kBoundEnds];  // messages on each connection, in a tile
  uint8_t sent[kBoundEnds];
  uint8_t once;  // 1: of one tile; packets: and no instruction has more than kFewSources sources; pulls: and
                 // all that is put, lands, is added to, or lies in scratch of tiles is none of it
  const std::byte* added;  // of block 0, as BoundInstruction::source
  uint32_t added_step;
  BoundInstruction instructions[kBoundInstructions];

  // In all.
  STARLING_HOST_DEVICE uint32_t steps() const { return planned * tile_count; }
};

}  // namespace starling::device
