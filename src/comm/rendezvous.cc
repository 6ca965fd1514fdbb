// Operations that meet before they begin (device::StreamPath::kRendezvous): until the streams of all ranks
// have come to one, it takes nothing of any GPU (docs/design/0007-start-as-a-kernel.md, "Rendezvous").
//
//   stream of this rank ── arrival[s] ──▶ poller ── LaneShared::arrived ──▶ pollers of the peers
//                                           │ all have arrived
//                                           └──▶ submission queue ──▶ daemon
//
// Who does not meet, as it holds its stream or was called by the CPU, has arrived when it is placed.
#include <algorithm>

#include "base/env.h"
#include "base/room.h"
#include "comm/context.h"

namespace starling {

// Where ranks have one order, who is late comes soon; of a message the sender needs nobody.
bool HostLane::may_rendezvous() const {
  return settings().guard == Guard::kWatch && !options_.is_default && options_.place.source < 0 &&
         !carried_ && captures_ == nullptr && size() > 1;
}

// Who holds its stream has no other use for its place.
bool HostLane::wants_rendezvous(const Flight& flight) const {
  return may_rendezvous() && resolved() && flight.on_stream && !flight.held && !flight.called &&
         bytes_of(flight.lowered) >= kRendezvousBytes;
}

// Under the lock.
void Context::submit_met() {
  bool any = false;
  for (HostLane* lane : meeting_) guarded_for(*lane, [&] { any |= submit_met(*lane); });
  std::erase_if(meeting_, [](HostLane* lane) {
    const FlightQueue& flights = lane->flights();
    for (size_t k = 0; k < flights.size() && flights[k].on_device; ++k)
      if (flights[k].by_rendezvous() && !flights[k].met) return false;
    return true;
  });
  if (any) flush_submissions();
}

// In their order. Those of a broken lane go at once: the daemon drops them, and waits for the fault before it
// would touch what a stream has not given yet.
bool Context::submit_met(HostLane& lane) {
  const bool broken = is_broken(lane);
  bool any = false;
  bool in_order = true;
  FlightQueue& flights = lane.flights();
  for (size_t k = 0; k < flights.size() && flights[k].on_device; ++k) {
    Flight& flight = flights[k];
    const bool meets = flight.by_rendezvous() && !flight.met;
    if (!broken) {
      // Acquire: pairs with the stream's write; the submission's release hands on the operation's input.
      if (meets && host_machine_.load_acquire(lane.arrival(flight.sequence)) != flight.sequence + 1) break;
      post_arrival(lane, flight.sequence);
    }
    if (!meets) continue;
    in_order = in_order && (broken || have_all_arrived(lane, flight.sequence));
    if (!in_order) continue;
    for_one_more(unsubmitted_);
    unsubmitted_.push_back({submission_of(lane, flight, broken), flight.written});
    flight.met = any = true;
    executor_->streams()->met(flight.entry);
  }
  return any;
}

}  // namespace starling
