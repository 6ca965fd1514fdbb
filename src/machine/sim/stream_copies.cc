// Lanes of copies of a rank with streams, as comm/copies.cc submits, feeds and ends their operations.
#include <utility>

#include "machine/sim/stream_rank.h"

namespace starling::sim {

void StreamRank::start_copies(const Step& step, SimLane& lane) {
  const uint64_t index = lane.submitted();
  const bool on_stream = index >= before_streams_[step.lane];
  lane.make_buffers();
  if (!on_stream || step.kind == StepKind::kPrepared)
    lane.fill(index);
  else
    put_kernel(step.stream, Kernel::Kind::kFill, step.lane, index, step.ns);
  const StreamRequest request{step.stream, step.held != 0, false, false, false, true};
  for (lock(); on_stream && step.held && !lane.broken && !driver_->may_stand(); lock()) {
    unlock();
    w_->scheduler.sleep();  // until an entry of some stream begins or ends
  }
  SimMachine host(*w_, nullptr, 0, 0);
  // Acquire: as whoever asks for the lane's fault.
  if (lane.broken || host.load_acquire(lane.fault()) != 0) return unlock();
  if (on_stream) tickets_[step.lane].emplace(index, driver_->enter(request));
  lanes_.open(lane);
  lane.copies().note(index, on_stream, step.differs);
  lane.count_submitted(w_->scheduler.now());
  ++submitted_;
  feed(lane);
  w_->scheduler.wake(poller_fiber_);
  unlock();
  if (!on_stream) return;
  const uint64_t sequence = o_->first_sequence + index;
  gpu_.put_write(step.stream, lane.copies().mark(sequence), sequence + 1);
  if (!step.held) return;
  driver_->wait_for(step.stream, lane.handover(), sequence, false);
  put_kernel(step.stream, Kernel::Kind::kCheck, step.lane, index);
}

// To the proxy when all peers are known; of two ranks that mean different things the later one sees it
// before.
void StreamRank::feed(SimLane& lane) {
  if (!lane.spec().copies) return RankCore::feed(lane);
  SimMachine host(*w_, nullptr, 0, 0);
  const auto& peers = c_->lanes[lane.number()];
  while (!lane.broken && lane.has_work_for_core()) {
    const uint64_t index = lane.placed();
    const uint64_t sequence = o_->first_sequence + index;
    lane.copies().post(host, index, sequence);
    for (SimLane* peer : peers)
      if (peer != &lane && !lane.copies().matches(host, sequence, peer->copies())) {
        lanes_.break_lane(lane);
        return fail_waiting(lane);
      }
    copy_proxy_.add(lane.place_copies(peers));
  }
}

bool StreamRank::take_copied() {
  bool any = false;
  for (CopyProxy::Finished finished; copy_proxy_.exists() && copy_proxy_.take(finished); any = true) {
    ++copied_;
    finish_operation(*finished.lane, finished.index);
  }
  return any;
}

// By the poller: lanes whose peers have come; an abort; what peers have let go of.
void StreamRank::look_after_copies() {
  if (!copy_proxy_.exists()) return;
  for (SimLane* lane : lanes_.mine())
    if (lane->spec().copies) feed(*lane);
  if (o_->aborting_rank == int32_t(index_) && !aborted_) {
    if (w_->scheduler.now() < o_->aborting_ns)
      w_->scheduler.note_deadline(o_->aborting_ns);
    else
      for (SimLane* lane : lanes_.mine())
        if (lane->spec().copies && lane->is_open()) lanes_.break_lane(*lane);
    aborted_ = w_->scheduler.now() >= o_->aborting_ns;
  }
  if (o_->timeout_ns == 0) return;
  all_given_back_ = lanes_.give_back(app_ended_ && outstanding() == 0, true);
  for (SimLane* lane : lanes_.mine())
    if (lane->given_back && std::exchange(lane->kept, 0) > 0) w_->scheduler.wake(app_fiber_);
}

// It has ended with an error, but its request has not: peers may write its buffers.
void StreamRank::keep(SimLane& lane) { ++lane.kept; }

uint64_t StreamRank::kept() const {
  uint64_t count = 0;
  for (const SimLane* lane : lanes_.mine()) count += lane->kept;
  return count;
}

// By the application, whose streams have left them.
void StreamRank::reuse_given_back() {
  for (SimLane* lane : lanes_.mine())
    if (lane->spec().copies && lane->given_back) lane->reuse_buffers();
}

}  // namespace starling::sim
