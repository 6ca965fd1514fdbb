// What a block did, for timelines and for the story of a failure: a ring with one writer, the block.
// A reader copies a record and reads `written` again: a record is valid if it was not overrun meanwhile.
#pragma once
#include <cstdint>

#include "base/portable.h"

namespace starling {

enum class TraceEvent : uint8_t {
  kLaunch = 0,    // the block entered the daemon loop
  kQuit = 1,      // it left it
  kFetch = 2,     // a submission was read
  kRun = 3,       // an operation took the block
  kPark = 4,      // it gave the block back, stuck; detail: instruction << 32 | peer it waits for
  kComplete = 5,  // the block finished its part
  kPublish = 6,   // the last block wrote the completion
  kFault = 7,     // the operation was dropped because its lane is broken
};

struct TraceRecord {
  uint64_t ticks;
  uint64_t sequence;
  uint64_t detail;
  uint32_t lane;
  TraceEvent event;
  uint8_t reserved[3];
};
static_assert(sizeof(TraceRecord) == 32);

struct TraceRing {
  uint64_t written;  // writer: the block
  uint64_t capacity;  // power of two
  TraceRecord* records;
};

// Counters of a block; writer: the block.
struct alignas(64) BlockCounters {
  uint64_t launches;
  uint64_t parks;
  uint64_t saves;         // contexts written back (lazy saving: only if they progressed)
  uint64_t loads;         // contexts loaded into an active slot
  uint64_t resumes;       // runs of an operation that had been parked
  uint64_t completions;
  uint64_t quits_idle;
  uint64_t quits_stuck;
  uint64_t quits_drained;  // left because another block wanted to
  uint64_t instructions;
  uint64_t passes;
  uint64_t queue_peak;
  uint64_t reserved[4];
};
static_assert(sizeof(BlockCounters) == 128);

}  // namespace starling
