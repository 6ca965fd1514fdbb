// One operation on its way: what was lowered, and what is known of its stream.
#pragma once
#include <cstdint>

#include "comm/lowering.h"
#include "comm/request.h"
#include "device/stream_host.h"

namespace starling {

// An operation between submission and completion.
struct Flight {
  Flight() = default;
  // As lower(), which it is built by where it stays.
  Flight(const LoweringContext& context, const starling_operation& call, RequestPtr of)
      : request(std::move(of)), lowered(lower(context, call)) {}

  RequestPtr request;
  RequestPtr second;  // a send to oneself is one operation with two requests
  uint64_t sequence = 0;
  uint64_t timeout_ns = 0;
  uint64_t submitted_ns = 0;
  uint64_t deadline_ns = 0;
  int32_t priority = 0;
  bool on_device = false;
  bool waited = false;  // its caller will run the daemon
  bool perhaps_waited = false;  // its caller may; else the daemon is rung late
  bool on_stream = false;  // `stream` and what follows count
  bool held = false;       // the stream's later work begins after it
  bool called = false;  // by the CPU, without a stream; it begins as a kernel in the context's own
  bool joins = false;   // device::StreamCall's, as the next
  uint8_t box = 0;
  device::Stream stream = nullptr;
  device::StreamEntry entry{};
  bool carried = false;  // its lane's proxy was told that it is under way
  bool entered = false;  // `entry` counts
  bool met = false;      // of a rendezvous: it was submitted
  bool for_proxy = false;  // of a lane of copies, and its proxy has not got it
  uint64_t written = 0;  // Place::written() when it got its place: all that its blocks read of the host
  uint64_t record = 0;   // its number in the flight record; 0: it has none
  uint32_t lane = 0;     // with it
  Lowered lowered;  // last: it is large, and who completes the operation does not look at it

  // Once its lane is there: what is older than a lane is taken for an earlier one's (starling diagnose).
  void submit_at(uint64_t now_ns) {
    submitted_ns = now_ns;
    deadline_ns = now_ns + timeout_ns;
  }

  // When it has ended: what is the caller's.
  void let_go() {
    request.reset();
    second.reset();
    lowered.bounced.reset();
  }

  // A start kernel runs it, and tells the host when it is complete.
  bool by_kernel() const { return entered && entry.path == device::StreamPath::kKernel; }
  // Its submission waits for the streams of all ranks.
  bool by_rendezvous() const { return entered && entry.path == device::StreamPath::kRendezvous; }
};

}  // namespace starling
