// A flow: everything that one rank writes into another's memory, as one sequence of transfers over all paths
// between the two. This is the state of its two ends, plain so that it can be copied, compared and hashed;
// sender.h and receiver.h move it. Each end is owned by one thread, the rank's proxy.
//
//   counters     acked <= done <= transmitted <= posted, and done never retreats
//   posted       transfers that the owner has offered                         sender
//   transmitted  transfers that were put on a path in this epoch; goes back to `done` when an epoch begins
//   acked        as far as the sender knows `done`: below it, sources are the owner's again
//   done         all before it are in memory: the owner may publish them      receiver
//
//   sender    RUN(e) -- a path of e failed, or a better one came --> FENCING(e+1): stop posting, close what
//   failed
//             FENCING(e+1) -- all closed, a path lives --> WAIT_RESUME(e+1): propose (e+1, attempt, paths)
//             WAIT_RESUME(e+1) -- a path of the proposal failed --> FENCING(e+1), next attempt
//             WAIT_RESUME(e+1) -- report of (e+1, attempt) --> RUN(e+1) from `done` of that report on
//   receiver  RUN(e) -- a path of e failed, or a proposal of e+1 --> FENCED(e+1)
//             FENCED(e+1) -- every path of e is quiet, those to come are open --> RUN(e+1): report
//   A path is quiet when it is closed here, or the proposal came behind its data. docs/design/0013 has the
//   picture.
#pragma once
#include <cstdint>
#include <type_traits>

#include "wire/link.h"

namespace starling::link {

// Which living paths an epoch uses.
enum class Policy : uint32_t {
  kPrimaryBackup,  // the most preferred one (ICCL §3.3)
  kStriping,       // all
};

enum class PathCondition : uint8_t {
  kClosed,   // a timer will open it again
  kClosing,  // close() was called
  kOpening,  // open() was called
  kProbing,  // open; not trusted before it has answered some probes
  kUp,
};

enum class FailureCause : uint32_t {
  kNone,
  kCompletion,    // a transfer failed on the path
  kPort,          // the device reported its port down
  kPeer,          // the peer says that it failed there
  kSilent,        // a probe was not answered
  kBroken,        // the connection was closed by the other side
  kLost,          // a probe passed, data before it did not
  kOpen,          // it could not be opened
};

enum class FlowError : uint32_t {
  kNone,
  kNoPath,  // none has lived for too long
  kFatal,   // a transfer failed kMostBlamed times in a way that no path could help
  kPeer,    // the other end gave up
};

struct PathEnd {
  uint32_t incarnation;    // the open one, or the last one
  uint32_t floor;          // incarnations below it are dead at the other end (sender) or here (receiver)
  uint32_t outstanding;    // sender: transfers posted and not completed
  FailureCause cause;      // of the last failure since which it was open
  uint64_t probed_below;   // sender: transfers before this one were posted ahead of the probe
  uint32_t probed_epoch;
  uint32_t probe;          // number of the last one; 0 is none's
  uint32_t failures;       // since it last proved good, up to kMostFailures: steps of the reopen timer
  PathCondition condition;
  uint8_t asked;           // whether that probe is under way
  uint8_t answered;        // probes in a row, while probing
  uint8_t reserved;
};

inline constexpr uint32_t kMostFailures = 6;
inline constexpr uint32_t kMostBlamed = 3;  // fatal completions in a row that end the flow (path.h)

enum class SenderPhase : uint32_t { kRun, kFencing, kWaitResume, kFailed };

struct SenderState {
  uint64_t posted;
  uint64_t transmitted;
  uint64_t acked;
  uint64_t skip_base;  // bit k of skip: transfer skip_base + k landed in an older epoch
  uint64_t skip;
  uint64_t blamed_at;  // acked when last no path was to blame for a transfer that failed
  SenderPhase phase;
  uint32_t epoch;    // kRun: of the data; else the one to come
  uint32_t attempt;  // proposals of this epoch
  Policy policy;
  uint32_t probation;  // answers until an opened path is trusted
  uint32_t path_count;
  FlowError error;
  uint32_t watching;   // 1 + step of the watchdog that is armed; 0: none
  PathSet use;         // of the last epoch that ran
  PathSet survivors;   // of `use`, those that have not failed
  PathSet next_use;    // kWaitResume: proposed
  uint8_t giving_up;   // whether that timer is armed
  uint32_t blamed;     // so often in a row
  PathEnd paths[kMaxPaths];
  uint8_t path_of[kFlowWindow];  // [s % window]: path that transfer s was put on last
};

enum class ReceiverPhase : uint32_t { kRun, kFenced, kFailed };

struct ReceiverState {
  uint64_t done;
  uint64_t landed;  // bit k: transfer done + k landed
  uint64_t blamed_at;  // `done`, as the sender's
  ReceiverPhase phase;
  uint32_t epoch;    // of the data that is accepted, in kFenced too
  uint32_t attempt;  // that was agreed to
  uint32_t path_count;
  // The newest proposal that is not agreed to; pending_attempt 0: none.
  uint32_t pending_epoch;
  uint32_t pending_attempt;
  uint32_t pending_incarnations[kMaxPaths];
  FlowError error;
  uint32_t expecting;
  uint32_t watching;
  uint32_t last_path;  // that something arrived by
  PathSet use;         // of `epoch`
  PathSet quiet;       // of `use`: nothing of `epoch` can come any more
  PathSet pending_use;
  PathSet pending_survivors;
  uint8_t report_due;
  uint8_t giving_up;
  uint8_t reserved[2];
  uint32_t blamed;
  uint32_t also_reserved;
  PathEnd paths[kMaxPaths];
};

// Exploration hashes and compares their bytes.
static_assert(std::has_unique_object_representations_v<SenderState>);
static_assert(std::has_unique_object_representations_v<ReceiverState>);

}  // namespace starling::link
