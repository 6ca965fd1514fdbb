// Collectives of a group of one rank on a stream: the copy of its own part, or nothing where it is there
// already. The stream makes it, and writes a word that streams wait for and the poller reads. No kernel, no
// proxy, no daemon.
#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "comm/context.h"
#include "comm/transfers.h"

namespace starling {

// ---- the lane -----------------------------------------------------------------------------------------

void HostLane::begin_alone(Flight& flight) {
  flight.on_device = true;
  ++on_device_;
}

bool HostLane::oldest_alone_is_done(cpu::CpuMachine& host) const {
  if (on_device_ == 0) return false;
  const uint64_t sequence = flights_.front().sequence;
  // Acquire: pairs with the write of the stream, which comes behind its copy.
  return reached(host.load_acquire(&handover_.done[sequence % kCopyDepth].done), sequence + 1);
}

// ---- its context --------------------------------------------------------------------------------------

void Context::submit_alone(HostLane& lane, Flight&& flight, const std::string& refused) {
  StreamOperations& streams = checked_streams();
  place_->make_room();
  std::unique_lock lock = lock_to_submit();
  lane.open(0, 0);
  publish(lock, lane);
  lane.open_marks();
  // The lane has words for so many. The program is ahead of its GPU, as where a launch queue is full.
  while (lane.flights().size() >= kCopyDepth && !is_broken(lane)) {
    lock.unlock();
    if (!poll_once()) std::this_thread::sleep_for(std::chrono::nanoseconds(kFullNapNs));
    lock.lock();
  }
  count_submitted(lane, flight, refused);
  flight.waited = flight.perhaps_waited = flight.held = false;
  if (refused_by_fault(lane, flight)) return;
  const OwnCopy copy = own_copy_of(flight.lowered);
  const device::Stream stream = flight.stream;
  Flight& appended = append(lane, std::move(flight));
  const uint64_t sequence = appended.sequence;
  appended.request->set_place({lane.id(), sequence});
  lane.begin_alone(appended);
  ++on_device_;
  flight_.started(appended.record, appended.submitted_ns);
  if (std::find(alone_.begin(), alone_.end(), &lane) == alone_.end()) alone_.push_back(&lane);
  if (!std::exchange(poller_looks_, true)) show_poller();  // streams do not ring
  uint64_t* const done = &lane.handover().done[sequence % kCopyDepth].done;
  lock.unlock();
  if (copy.bytes > 0) streams.copy(stream, copy.to, copy.from, copy.bytes);
  streams.mark(stream, done, sequence + 1);
}

bool Context::take_alone(bool polite) {
  bool any = false;
  for (HostLane* lane : alone_)
    for (; lane->oldest_alone_is_done(host_machine_) && !(any && gives_way(polite)); any = true)
      complete(*lane, lane->flights().front().sequence);
  std::erase_if(alone_, [](HostLane* lane) { return lane->idle_on_device(); });
  return any;
}

// What is put into the stream from now on comes behind the operation.
bool Context::stands_behind(HostLane& lane, uint64_t sequence, device::Stream stream) {
  const FlightQueue& flights = lane.flights();
  for (size_t k = 0; k < flights.size(); ++k)
    if (flights[k].sequence == sequence) return flights[k].stream == stream;
  return true;  // it is complete
}

}  // namespace starling
