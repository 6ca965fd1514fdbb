// The memory of one rank's daemon: what outlives a quit, and what host and daemon share.
#pragma once
#include <cstdint>

#include "base/portable.h"
#include "wire/handover.h"
#include "wire/lane.h"
#include "wire/queue.h"
#include "wire/trace.h"

namespace starling {

// How willing a rank is to wait (DFCCL §4.3). In the machine's ticks.
struct Scheduling {
  uint64_t initial_budget;   // of the task at the front
  uint64_t minimum_budget;
  uint64_t maximum_budget;
  uint64_t quit_period;      // without progress and new submissions for so long: leave
  uint64_t residency_limit;  // leave after so long in any case
  uint32_t success_factor;   // a finished instruction multiplies the budget of those that follow
  uint32_t position_shift;   // task p begins with initial_budget >> (p * shift)
  uint32_t fetch_batch;      // submissions read at a time
  uint32_t priority_order;   // 1: fetch before every task and sort by priority; 0: FIFO
  uint32_t unbounded;        // 1: yielding switched off, to show what it is for: never in real use
  uint32_t in_turn;          // 1: wait on each task in turn, as DFCCL does; 0: run those that can go on
};
static_assert(sizeof(Scheduling) == 64);

// Slots of the pool that a block may lend to its connectors: a stack, owned by the block.
struct SlotPool {
  uint32_t* free;
  uint32_t free_count;
  uint32_t capacity;
};

inline constexpr uint32_t kLaneSegment = 256;
inline constexpr uint32_t kMaxLanes = kLaneSegment * 256;

// One task of a block: a lane with operations to run (DFCCL's task queue element).
struct Task {
  uint32_t lane;
  int32_t priority;
  uint64_t arrival;         // order among equal priorities
  const uint64_t* awaited =
      nullptr;  // its operation cannot go on before this counter is at `target` (cyclic); null:
  uint64_t target = 0;      // not known, it has to be tried
};
static_assert(sizeof(Task) == 32);

inline constexpr uint64_t kUrgentBase = 1 << 16;

struct alignas(64) BlockMemory {
  uint64_t submissions_read;  // of the submission ring; writer: the block
  Task* tasks;            // [task_capacity]: grown by the host before lanes exist that need it
  uint32_t task_count;
  uint32_t cursor;  // task that comes next; not 0 at a launch if the last residency ended amid a pass
  uint64_t arrivals;
  SlotPool pool;
  uint64_t* unpublished;  // completions that found the queue busy: tried again in every pass. As many places
                          // as the completion queue, which has one for every operation on the device
  uint32_t unpublished_count;
  uint64_t last_progress;  // ticks; writer: the block; read by the others before they quit
  uint64_t urgent;  // the largest priority of a task that progressed in the last pass, + kUrgentBase; 0:
                    // none. Writer: the block. A hint to start kernels, nothing depends on it
  BlockCounters counters;
  TraceRing trace;
};

// kElsewhere: the block serves another part, or leaves its parts to others (DaemonParts). kReleased: a watch,
// whose stream goes on.
enum class LeaveReason : uint32_t {
  kIdle = 0,
  kStuck = 1,
  kDrained = 2,
  kResidency = 3,
  kExit = 4,
  kElsewhere = 5,
  kReleased = 6
};

// Which block serves which part of the daemon, where they change (device/daemon_block.h).
struct DaemonParts {
  uint64_t roam_after;  // ticks in which nothing has gone on: blocks begin to change parts
  uint64_t leave_after;  // likewise: to give their places back
  uint64_t serving;  // blocks of this residency that have parts, and are not closing them
  uint64_t roamed;  // = the residency's number: a block of it has changed parts
  uint64_t* holders;  // [block_count]; = the residency's number: a block has the part, or has closed it
  // Where streams have watches (device/daemon_block.h): number of the residency << kTenureShift | its blocks.
  uint64_t tenure = 0;
  uint64_t anchors = 0;  // of its blocks, those that somebody relies on: watches and guards
  uint64_t dismissed = 0;  // = launch number: the host wants kernels up to it to leave
};
inline constexpr uint32_t kNoPart = ~0u;
inline constexpr uint32_t kTenureShift = 16;

struct alignas(64) DaemonMemory {
  Lane** segments[kMaxLanes / kLaneSegment];  // lane id -> segments[id / 256][id % 256]; writer: host
  SubmissionRing submissions;
  alignas(64) uint64_t drain;  // = a residency's number: it is to end; writers: any block; and the host, but
                               // where there are watches
  alignas(64) uint64_t exited;  // 1: an exiting submission was read; writers: blocks (all write 1)
  Scheduling scheduling;
  uint32_t block_count;
  uint32_t reserved;
  BlockMemory* blocks;
  ParkedRing* parked;  // [block_count]; null: no start kernels
  DaemonParts* parts;  // null: a block serves the part of its number
  uint64_t* work;  // in the host's memory; null without start kernels. 1: something waits for a daemon.
                   // Writers: blocks that park or quit, all write 1; the host takes it back by an exchange
};

}  // namespace starling
