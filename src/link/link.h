// What a flow's end asks of its link, and what a link reports: the whole interface between failover
// (sender.h, receiver.h) and what carries bytes. TCP, verbs and the simulated network implement it.
//
// A link has some *paths* to the peer, numbered in order of preference, each over a port of its own. A path
// is opened, breaks, is closed, and is opened again: each time it is a new *incarnation*, and nothing passes
// from one into the next. A link promises:
//   1. Of one incarnation, what is posted and sent comes in order, data and messages together. Any of it may
//   never
//      come. (A TCP socket; a reliable queue pair.)
//   2. A transfer that arrived lies in the receiver's memory before `arrived` is reported.
//   3. `closed` comes within bounded time after close(), whatever the network does. Before it, everything
//   that
//      landed here was reported. After it, no write of that incarnation lands here and no source is read
//      here. (A queue pair that was reset; a socket that is closed by the thread that reads it.) This is the
//      fence.
//   4. An older incarnation is reported `closed` at an end before a newer one is reported `opened` there.
// It promises no completions, no arrivals and no events at all on a path that is silent.
#pragma once
#include <cstdint>

#include "wire/link.h"

namespace starling::link {

// Failover has no clock: it arms timers, and the link reports those that end. Lengths are the link's
// settings.
enum class Timer : uint32_t {
  kWatchdog,  // no progress. Step 0: transfers are under way; 1: nothing is, look all the same
  kResend,    // a message was not answered
  kGiveUp,    // no path lives
  kProbe,     // of a path: the probe was not answered
  kReopen,    // of a path: try again; longer with each step
};

class Link {
 public:
  virtual ~Link() = default;
  // Writes transfer `sequence` into the peer's memory by this path. False: no room, or another
  // path has less under way; nothing was done.
  virtual bool post(uint32_t path, uint32_t epoch, uint64_t sequence) = 0;
  // Behind everything that was posted and sent on this path. Full: it may be dropped.
  virtual void send(uint32_t path, const LinkMessage& message) = 0;
  virtual void close(uint32_t path) = 0;
  // By the sender alone, of a path that is closed here: `opened` follows, or `open_failed`.
  virtual void open(uint32_t path, uint32_t incarnation) = 0;
  // An armed timer starts again. Path 0 where the timer has none.
  virtual void arm(Timer timer, uint32_t path, uint32_t step) = 0;
  virtual void disarm(Timer timer, uint32_t path) = 0;
};

enum class EventKind : uint32_t {
  // From the owner. The first one, with 0, starts an end: from then on it watches its paths.
  kOffered,    // at the sender: transfers before `sequence` may be posted
  kExpecting,  // at the receiver: whether anybody waits for data (sequence: 0 or 1)
  // From the link.
  kCompleted,   // at the sender: of one transfer, see status
  kArrived,     // at the receiver: transfer `sequence` of `epoch`
  kMessage,
  kOpened,
  kOpenFailed,
  kClosed,      // asked for, or by itself: the peer closed, or the connection broke
  kPortDown,    // the device says so
  kPortUp,
  kTimer,
};

enum class Completion : uint32_t {
  kOk,
  kRetryable,  // the path is to blame: retries exceeded, flushed, reset
  kFatal,      // protection, length, a bad key: where it comes again and again, no path would help
};

struct Event {
  EventKind kind;
  uint32_t path = 0;
  uint32_t incarnation = 0;  // of the path; events of older ones are ignored
  uint32_t epoch = 0;
  uint64_t sequence = 0;
  Completion status = Completion::kOk;
  Timer timer = Timer::kWatchdog;
  LinkMessage message = {};
};

inline Event path_event(EventKind kind, uint32_t path, uint32_t incarnation) {
  Event event{.kind = kind};
  event.path = path;
  event.incarnation = incarnation;
  return event;
}

}  // namespace starling::link
