// A rank's flight record: what it did last, in a file of its own in /dev/shm, so that it is there when the
// rank is not. The rank's host writes it by plain stores; `starling diagnose` (python/starling/diagnose)
// reads it during a hang and after a crash. The same bytes are the files in STARLING_FLIGHT_DIR.
//
//   FlightHeader | FlightGroup[64] | member ids u64[4096] | FlightOperation[256] | FlightLane[512]
//   FlightPath[128]
//
// Writer of operations and lanes: whoever holds the context's lock; of paths: the poller. A reader takes
// everything twice; an entry is whole if it is equal in both and its two numbers are equal and not 0, a
// sample of a path if the second copy's `written` is not yet its place's again.
#pragma once
#include <cstdint>

#include "base/portable.h"
#include "wire/monitor.h"
#include "wire/types.h"

namespace starling {

inline constexpr uint64_t kFlightMagic = 0x3254484749464c53;  // "SLFIGHT2"
inline constexpr uint32_t kFlightGroups = 64;
inline constexpr uint32_t kFlightMembers = 4096;
inline constexpr uint32_t kFlightOperations = 256;  // a power of two
inline constexpr uint32_t kFlightLanes = 512;
inline constexpr uint32_t kFlightPaths = 128;
inline constexpr uint32_t kFlightSamples = 32;  // of a path; a power of two
inline constexpr uint32_t kFlightFaults = 4;  // the first ones; the cause is among them
inline constexpr uint32_t kNoFlightGroup = ~uint32_t(0);

enum class FlightState : uint32_t {
  kRunning = 0,  // or died: then nobody holds the lock of its segment
  kEnded = 1,  // in order, but it had seen a fault: else the file is gone
};

struct FlightFault {
  uint64_t kind;  // FaultKind; writer: as of operations, last (release)
  uint64_t sequence;
  uint64_t time_ns;
  uint32_t lane;
  uint32_t reserved;
  char text[480];
};
static_assert(sizeof(FlightFault) == 512);

// All times are of the host's monotonic clock.
struct FlightHeader {
  uint64_t magic;  // writer: the owner, last (release)
  uint64_t bytes;
  uint64_t id;  // of the rank, in other ranks' lists of members
  uint64_t host;  // equal for ranks that share memory
  uint64_t realtime_offset_ns;  // realtime clock - monotonic clock
  uint64_t created_ns;
  uint64_t alive_ns;  // writer: the poller, in each round: at least every 100 ms where it runs
  uint64_t submissions;  // FlightOperations so far; the last is in place (submissions - 1) % 256
  uint64_t copied_ns;  // in a copy: when it was made
  uint32_t pid;
  uint32_t state;  // FlightState
  uint32_t blocks;
  uint32_t linked;  // 1: it has a proxy, one more thread
  uint32_t group_count;  // ever used
  uint32_t lane_count;  // ever used; lanes beyond the table have no entry
  uint32_t fault_count;  // of the table
  uint32_t copied_by;  // process that made this copy; the owner's, or a peer's
  // While it joins a group: whom it waits for. Writer: the joining thread, `joining_since_ns` last (release).
  uint64_t joining_since_ns;  // 0: it does not
  uint32_t joining_rank;
  uint32_t joining_size;
  uint32_t joining_own;
  uint32_t path_count;  // of the table
  char joining_name[64];
  char arena[64];  // name of its segment
  char host_name[64];
  char job[128];
  char device[32];
  uint64_t reserved_tail[4];
  FlightFault faults[kFlightFaults];
};
static_assert(sizeof(FlightHeader) == 2560);

struct FlightGroup {
  uint64_t key_low;
  uint64_t key_high;
  uint64_t joined_ns;
  uint64_t left_ns;  // 0: it is still there
  uint64_t unmatched_since_ns;  // of the oldest receive from any source that has no sender; 0: none
  uint32_t size;
  uint32_t rank;
  uint32_t first_member;  // of `size` ids; kNoFlightGroup: there was no room
  uint32_t subgroup;  // 1: made from another group
  char name[64];
  uint64_t reserved;
};
static_assert(sizeof(FlightGroup) == 128);

struct FlightLane {
  uint64_t number;  // 0: none. Otherwise grows when the entry is used for another lane
  uint64_t key_low;
  uint64_t key_high;
  uint64_t submitted;
  uint64_t completed;  // also with an error
  uint64_t opened_ns;  // operations of this index before that were another lane's
  uint64_t closed_ns;  // 0: it is still there
  uint32_t group;  // index of its FlightGroup
  uint32_t size;
  uint32_t rank;  // in the lane
  int32_t source;  // of a lane of messages: ranks of the group; else -1
  int32_t destination;
  uint32_t reserved;
  char name[104];
  uint64_t number_again;
};
static_assert(sizeof(FlightLane) == 192);

struct FlightOperation {
  uint64_t number;  // its place in all of the rank's, from 1
  uint64_t sequence;  // in the lane
  uint64_t count;
  uint64_t bytes;
  uint64_t plan_hash;
  uint64_t counts_hash;
  uint64_t submitted_ns;
  uint64_t started_ns;  // the daemon had it; 0: not yet
  uint64_t completed_ns;  // 0: not yet
  int32_t root;
  uint32_t lane;
  Collective collective;
  DataType data_type;
  ReduceOp reduce_op;
  uint8_t flags;  // kFlightVarying | kFlightInPlace
  uint32_t status;  // starling_status, once completed
  uint64_t number_again;
};
static_assert(sizeof(FlightOperation) == 96);
inline constexpr uint8_t kFlightVarying = 1;
inline constexpr uint8_t kFlightInPlace = 2;

// What a path carried from one look of the poller to the next, of the transfers that it read of the path's
// ring (wire/monitor.h).
struct FlightSample {
  uint64_t begin_ns;  // the end of the sample before; after a leap over records: the post of the first one
  uint64_t end_ns;  // completion of the last transfer
  uint64_t bytes;
  uint64_t busy_ns;  // with something under way
  uint64_t lost_ns;  // to the network, against the path's own history (monitor/anomaly.h)
  uint64_t usual_bytes_per_second;  // what history expects of such transfers; 0: it is too short
  uint64_t window_bytes_per_second;  // of the last window
  uint32_t transfers;
  uint32_t reserved;
};
static_assert(sizeof(FlightSample) == 64);

// What the rank sends to one other by one path. No sample is made while nothing completes: so they reach back
// behind a standstill. Writer: the poller.
struct FlightPath {
  uint64_t written;  // samples so far; k is in place k % kFlightSamples (release)
  uint64_t seen_ns;  // when the poller looked last: of then are the next two
  uint64_t left_bytes;  // under way
  uint64_t waiting_since_ns;  // of the oldest under way; 0: none is
  uint64_t transfers;  // that completed, also those that are in no sample
  uint64_t bytes;
  uint64_t closed;  // how often
  uint32_t peer;  // as in its ring, like the rest
  uint32_t path;
  LinkKind link;
  char name[108];
  uint64_t reserved[2];
  FlightSample samples[kFlightSamples];
};
static_assert(sizeof(FlightPath) == 192 + kFlightSamples * sizeof(FlightSample));

struct FlightRecord {
  FlightHeader header;
  FlightGroup groups[kFlightGroups];
  uint64_t members[kFlightMembers];
  FlightOperation operations[kFlightOperations];
  FlightLane lanes[kFlightLanes];
  FlightPath paths[kFlightPaths];
};
static_assert(sizeof(FlightRecord) == 2560 + 64 * 128 + 4096 * 8 + 256 * 96 + 512 * 192 + 128 * 2240);

}  // namespace starling
