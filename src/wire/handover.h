// How an operation that starts as a kernel of its own passes to the daemon, block by block, and how streams
// and the host learn of both. Picture of states and owners: docs/design/0007-start-as-a-kernel.md.
//
// A *part* is what one block does for a lane: its ends of the connectors and its dynamic context. Operations
// of a lane use a part one after the other. Whoever runs the operation whose turn it is owns the part, be it
// a block of a start kernel or the daemon's block of the same number; nobody else touches it.
#pragma once
#include <cstdint>

#include "base/portable.h"

namespace starling {

// Cyclic, as streams compare: has a counter that only grows reached the value?
STARLING_HOST_DEVICE constexpr bool reached(uint64_t counter, uint64_t value) {
  return int64_t(counter - value) >= 0;
}

// Added to a value that somebody waits for: no counter gets there, and every waiter is released.
inline constexpr uint64_t kPoison = uint64_t(1) << 62;
// Added to Done::told: who waits for it comes, though the operation is not complete.
inline constexpr uint64_t kWoken = uint64_t(1) << 61;

// Turn::issued: more than an operation has blocks.
inline constexpr uint64_t kIssued = 256;
// Added to it: the lane is broken, and its operations begin no more.
inline constexpr uint64_t kClosed = uint64_t(1) << 63;
// Added to Turn::waiting: more than blocks can wait.
inline constexpr uint64_t kPlaceIsFree = 128;

struct alignas(64) Turn {
  uint64_t next;  // operation whose turn it is on this block; writer: who owns the part (release)
  uint64_t marked;  // bit s % 64: operation s starts only after its stream's mark; writer: the daemon's block
  uint64_t
      issued;  // of part 0 alone, and ordered by the stream alone: kIssued * captured operations that came,
               // and the blocks that have come to the next one; writers: blocks of start kernels, atomically
  uint64_t ended;  // the last operation whose turn a start kernel has handed to it; writer: start kernels'
                   // blocks, with `next`. Whoever began after such a kernel had ended, or is its block, needs
                   // no acquire
  uint64_t waiting;  // of part 0 alone, and of captured operations: kIssued * (s + 1), and how many blocks
                     // found no place for operation s (device/captured.h); writers: those, atomically
  uint64_t
      left;  // s + 1: the block of this part left captured operation s to the first that waits; writer: it
  uint64_t reserved[2];
};
static_assert(sizeof(Turn) == 64);

// How streams and the host hear of an operation. In the host's memory, and stored as one.
struct alignas(16) Done {
  uint64_t done;  // s + 1: operation s is complete; writers: the block that completes it (release), and the
                  // host with a poisoned value. Streams and gates wait for it
  uint64_t told;  // s + 1: the same; the host hears by it of what began as a kernel (Operation::token is 0),
                  // which goes by no completion queue, and streams with watches wait for it. Writers: that
                  // block (release), and the host, which adds kWoken atomically: what it had stays readable
};
static_assert(sizeof(Done) == 16);

// How a host tells start kernels whether they may keep their places (device/alone.h). In the host's memory.
struct AloneWords {
  uint64_t stay;  // 2 * period: who is stuck leaves after a while; + 1: stays. Of another period: leaves.
                  // Writer: the host
  uint64_t leaving;  // 2 * period: a block of it leaves; writers: such blocks
};

// Of one lane; null in a lane that no stream uses.
struct Handover {
  Turn* turns;  // [width]
  uint64_t* ready;  // s + 1: the stream has come to operation s, which may start; writers: streams, in order
  Done* done;  // [depth]: operation s at s % depth
  uint64_t* gates;  // [depth], s + 1: a block stays for operation s; writers: parking blocks, atomically
  uint64_t* came;  // [2][depth], s + 1: a stream that stood for operation s has come to its watch; and a
                   // watch for it was put into a stream. In the host's memory; writers: such streams; threads
                   // that put them in
  uint32_t width;  // parts: as many as the daemon has blocks
  uint32_t depth;  // of the lane's rings
  uint64_t* begun;  // null, or the lane has captured operations only (docs/design/0019-cuda-graphs.md): those
                    // that came to block 0 of their start kernels, in the host's memory; writer: that block
};
static_assert(sizeof(Handover) == 56);

// Operation s of a lane, left by block b of its start kernel to block b of the daemon: to be run, from the
// lane's context or from its beginning.
struct Parked {
  uint64_t position;  // + 1, last (release): the place is filled; writer: the start kernel's block
  uint64_t sequence;
  uint32_t lane;
  int16_t priority;
  uint8_t block_count;
  uint8_t reserved;
};
static_assert(sizeof(Parked) == 24);

// Many producers, start kernels' blocks b; one consumer, the daemon's block b. It never fills: a block parks
// an operation at most once, and the host keeps fewer operations under way than it has places.
struct ParkedRing {
  alignas(64) uint64_t tail;  // writers: start kernels, atomically
  alignas(64) uint64_t head;  // writer: the daemon's block
  uint64_t capacity;  // power of two
  Parked* entries;
};

}  // namespace starling
