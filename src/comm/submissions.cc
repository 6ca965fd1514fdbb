// The context's part between an operation's call and its submission: its lane is opened, and what the daemon
// reads of it has arrived there.
#include <algorithm>

#include "base/room.h"
#include "comm/context.h"
#include "comm/offer.h"
#include "device/submission_queue.h"

namespace starling {
namespace {

uint64_t token_of(uint32_t lane, uint64_t sequence) {
  return (uint64_t(lane) + 1) << 28 | (sequence & 0xfffffff);
}

}  // namespace

// True if peers have news of it: it was opened, or met some of theirs.
bool Context::open_lane(std::unique_lock<QuickMutex>& lock, HostLane& lane, const Lowered& lowered) {
  const bool fresh = lane.shared() == nullptr;
  // A plan of a user's may have more channels than blocks; a lane of its own has them all.
  const PlanHeader& plan = *lowered.plan->header(lane.rank());
  lane.open(lowered.size_class_bytes, std::max(plan.channel_count, plan.block_count));
  if (fresh) {
    memory_.set_lane(lane.id(), lane.device());
    lane.note_written();
  }
  publish(lock, lane);
  lane.check(*lowered.plan);
  return lane.resolve() || fresh;
}

// Lets go of the lock while it waits: others may need us to complete, or to launch a daemon, and what we wait
// for may stand in the driver until they have.
void Context::publish(std::unique_lock<QuickMutex>& lock, HostLane& lane) {
  while (!lane.publish()) {
    lock.unlock();
    place_->flush();
    lock.lock();
  }
}

// Signatures cross when an operation goes to the device, not when it is submitted: a rank may submit any
// number ahead, but the board remembers more positions than the device holds. False: the lane is
// broken now.
bool Context::announce(HostLane& lane, const Flight& flight) {
  post_signature(lane, flight);
  // A peer that opened its region between our last look and our board sees our board; look again for its.
  if (!lane.resolved()) lane.resolve();
  const auto mismatch = find_mismatch(lane, flight, true);
  if (!mismatch) return true;
  starling::break_lane(lane, FaultKind::kMismatch, flight.sequence, *mismatch);
  fail_waiting(lane, fault_of(lane));
  return false;
}

Submission Context::submission_of(const HostLane& lane, const Flight& flight, bool marked) {
  return {lane.id(), int16_t(std::clamp(flight.priority, -32768, 32767)),
          flight.lowered.operation.block_count, marked, flight.sequence};
}

void Context::feed(HostLane& lane, uint64_t now_ns) {
  if (lane.by_copies()) return feed_copies(lane, now_ns);
  bool any = false;
  bool ring_daemon = false;
  bool ring_late = false;
  while (Flight* flight = lane.next_for_device()) {
    ring_late |= flight->perhaps_waited;
    ring_daemon |= !flight->waited && !flight->perhaps_waited;
    if (!announce(lane, *flight)) break;
    const bool kernel = flight->by_kernel();
    // What has its place is not refused.
    for_one_more(told_);
    for_one_more(meeting_);
    for_one_more(unsubmitted_);
    lane.place(*flight, kernel ? 0 : token_of(lane.id(), flight->sequence));
    flight_.started(flight->record, now_ns);
    ++on_device_;
    for_callers_ += !flight->on_stream;
    if (flight->called) count_called(*flight, false);
    const bool meets = std::find(meeting_.begin(), meeting_.end(), &lane) != meeting_.end();
    if (flight->by_rendezvous()) {
      if (!meets) meeting_.push_back(&lane);
      continue;
    }
    if (!meets) post_arrival(lane, flight->sequence);
    if (kernel) {
      if (std::find(told_.begin(), told_.end(), &lane) == told_.end()) told_.push_back(&lane);
      continue;
    }
    const bool marked = flight->entered && flight->entry.path == device::StreamPath::kMark;
    unsubmitted_.push_back({submission_of(lane, *flight, marked), flight->written});
    any = true;
  }
  if (any) flush_submissions(ring_daemon);
  if (ring_late && !ring_daemon) late_start_.arm();
}

// Those of which lane and plan have arrived; the rest waits, and nobody for it. A lane's own stay in their
// order: none needs less than the one before it (bind_plan). Others' order matters where operations run in
// turn.
void Context::flush_submissions(bool ring_daemon) {
  const uint64_t arrived = place_->arrived();
  const bool in_turn = memory_.scheduling().in_turn != 0;
  bool any = false;
  bool ends = false;
  std::erase_if(unsubmitted_, [&](const Unsubmitted& one) {
    const bool waits = one.written > arrived;
    ends |= waits && in_turn;
    if (ends || waits) return false;
    ends = !device::push_submission(host_machine_, memory_.submissions(), block_count(), one.submission);
    any |= !ends;
    return !ends;
  });
  if (any && ring_daemon && executor_ != nullptr) executor_->ring();
}

}  // namespace starling
