// What a watcher sees of a rank, in the rank's segment: who it is, the counters of its blocks, and for each
// path a ring of its transfers. One writer each; any number of readers, also in other processes, which write
// nothing.
//
//   ArenaHeader::monitor_offset --> MonitorShared --first_path--> PathRing --next--> PathRing ... 0
#pragma once
#include <cstdint>

#include "base/portable.h"

namespace starling {

inline constexpr uint64_t kMonitorVersion = 2;

struct MonitorShared {
  uint64_t version;  // kMonitorVersion; a watcher of another one looks no further
  uint64_t block_count;
  uint64_t block_stride;  // bytes from one block's counters to the next one's
  uint64_t counters_offset;  // of the first block's BlockCounters (wire/trace.h); 0: not in this segment
  uint64_t window;  // STARLING_WINDOW
  uint64_t first_path;  // offset of the newest PathRing; 0: none. Writer: the proxy (release)
  // Of the first communicator of the context. Writer: the host that joined, `joined` last (release).
  uint64_t joined;  // 1: the next four are there
  uint64_t job_high;  // the same for all its ranks
  uint64_t job_low;
  uint32_t rank;
  uint32_t size;
  char job[80];  // its name
  char device[32];  // "cpu", "cuda:0"
};
static_assert(sizeof(MonitorShared) == 192);

// An operation of a lane, as said on its board, is in wire/arena.h: LaneShared::submitted and `completed` say
// how many there were.

inline constexpr uint32_t kPathRecords = 1024;  // a power of two; 10 ms of 100,000 transfers a second

// What carries a path: sockets, or queue pairs.
enum class LinkKind : uint32_t { kTcp = 1, kVerbs = 2 };

// Each says what carried it: a reader that is late finds records of several incarnations in one ring.
struct TransferRecord {
  uint64_t posted_ns;  // monotonic clock of the host
  uint64_t completed_ns;
  uint32_t bytes;
  uint32_t left_bytes;  // posted on the path and not completed, after this one was
  LinkKind link = LinkKind::kTcp;
  uint32_t incarnation = 0;  // how often the path had been closed, in 32 bits
};
static_assert(sizeof(TransferRecord) == 32);

// What this rank sends to one other by one path. Never freed while the rank lives.
struct alignas(64) PathRing {
  // Set before the ring is there.
  uint64_t next;  // offset of the next PathRing
  uint32_t peer;  // rank in the communicator that met it first
  uint32_t path;  // number, in order of preference
  // Of the incarnation that is open, or was last; of what has completed its record says. Writer: the proxy.
  LinkKind link;
  char name[108];  // "rail0 10.77.0.1 -> rail0 10.77.0.2"
  // Writer: the proxy.
  alignas(64) uint64_t written;  // record k is in place k % kPathRecords
  uint64_t waiting_since_ns;  // when the oldest transfer under way was posted; 0: none is
  uint64_t left_bytes;  // under way
  uint64_t bytes;  // of all that completed
  uint64_t closed;  // how often the path was closed; what was under way then left no record
  // Of payloads, over queue pairs: read from where they lay and written where they go; and those that were
  // copied, at one end or both.
  uint64_t straight_bytes;
  uint64_t copied_bytes;
  uint64_t reserved;
  TransferRecord records[kPathRecords];
};
static_assert(sizeof(PathRing) == 192 + kPathRecords * sizeof(TransferRecord));

}  // namespace starling
