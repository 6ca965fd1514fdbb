// How a rank of the simulation puts its operations into streams.
#include <algorithm>

#include "machine/sim/stream_rank.h"

namespace starling::sim {

// One, or several that begin together.
void StreamRank::start(std::span<const Step> together) {
  const auto by_copies = [this](const Step& step) { return lanes_.at(step.lane)->spec().copies; };
  if (together.size() > 1 && std::any_of(together.begin(), together.end(), by_copies))
    return start_apart(together);
  std::vector<Starting> starting;
  for (const Step& step : together) {
    SimLane& lane = *lanes_.at(step.lane);
    if (lane.broken) continue;  // the caller gets an error at once
    if (lane.spec().copies) {
      start_copies(step, lane);
      continue;
    }
    const uint64_t index = lane.submitted();
    if (index < before_streams_[step.lane]) {
      submit(lane);
      continue;
    }
    lane.make_buffers();
    if (step.kind == StepKind::kPrepared)
      lane.fill(index);
    else
      put_kernel(step.stream, Kernel::Kind::kFill, step.lane, index, step.ns);
    starting.push_back({&step, &lane, index});
  }
  put_operations(starting);
  for (const Starting& one : starting)
    if (one.step->held && !one.lane->broken)
      put_kernel(one.step->stream, Kernel::Kind::kCheck, one.step->lane, one.index);
}

// From the CPU, as before the first stream comes to the lane.
void StreamRank::submit(SimLane& lane) {
  const uint64_t index = lane.submitted();
  lock();
  if (lane.broken) return unlock();
  if (begin_as_kernel(lane)) return wait_for_call(lane, index);
  enter_lane(lane);
  lanes_.open(lane);
  lane.submit(w_->scheduler.now());
  ++submitted_;
  if (lane.carried()) proxy_.begin_work();
  ++by_path_[kByQueue];
  feed(lane);
  driver_->poll();
  w_->scheduler.wake(poller_fiber_);
  unlock();
  wait_for_call(lane, index);
}

// As Context::begin_as_kernel(). True: it is under way, and the lock is free.
bool StreamRank::begin_as_kernel(SimLane& lane) {
  const auto taken = uint64_t(std::count(boxes_taken_.begin(), boxes_taken_.end(), 1));
  if (taken == boxes_taken_.size() || taken != outstanding()) return false;
  if (lane.carried() || !lane.resolved() || o_->doorbells != 0) return false;
  lane.open_to_streams();
  if (!lane.has_room()) return false;
  const uint64_t index = lane.submitted();
  const bool small = lane.spec().call(index).plan->header(lane.rank())->block_count == 1;
  const auto first = std::find(boxes_taken_.begin(), boxes_taken_.end(), 0);
  const auto last = std::find(boxes_taken_.rbegin(), boxes_taken_.rend(), 0);
  const auto box = uint32_t(small ? first - boxes_taken_.begin() : boxes_taken_.rend() - last - 1);
  boxes_taken_[box] = 1;
  unlock();
  lane.make_buffers();
  lane.fill(index);
  const Step step{StepKind::kStart, lane.number(), 0, first_call_stream_ + box};
  std::vector<Starting> starting{{&step, &lane, index, uint8_t(box + 1)}};
  put_operations(starting);
  if (starting.empty()) boxes_taken_[box] = 0;  // the lane has broken
  return true;
}

// Calls of programs with orders of their own are never waited for without a bound.
void StreamRank::wait_for_call(const SimLane& lane, uint64_t index) {
  if (o_->call_wait_ns == 0 || w_->scheduler.random().chance(kAlways / 4)) return;
  const uint64_t until = w_->scheduler.now() + o_->call_wait_ns;
  while (lane.completed() <= index && !lane.broken && w_->scheduler.now() < until) {
    w_->scheduler.note_deadline(until);
    w_->scheduler.sleep();
  }
}

// What is no kernel cannot begin in one: the stream is held when all are under way (comm/together.cc).
void StreamRank::start_apart(std::span<const Step> together) {
  for (Step step : together) {
    step.held = 0;
    start({&step, 1});
  }
  for (const Step& step : together)
    if (step.held) wait_on_stream(step);
}

// As device/stream_host.h asks of its callers. Those of broken lanes are dropped.
void StreamRank::put_operations(std::vector<Starting>& all) {
  for (lock();; lock()) {
    std::erase_if(all, [](const Starting& one) { return one.lane->broken; });
    bool may = true;
    StreamRequest first{};
    for (uint32_t k = 0; may && k < all.size(); ++k) {
      SimLane& lane = *all[k].lane;
      lane.open_to_streams();
      const StreamRequest request = request_of(all[k], lane.has_room(), k);
      if (k == 0) first = request;
      may = driver_->may_enter(request, k == 0 ? nullptr : &first);
    }
    if (may) break;
    unlock();
    w_->scheduler.sleep();  // until an entry of some stream begins or ends
  }
  std::vector<StreamEntering> entering;
  for (const Starting& one : all) entering.push_back(enter(one, !entering.empty()));
  w_->scheduler.wake(poller_fiber_);
  unlock();
  if (!all.empty()) driver_->enqueue(all.front().step->stream, entering);
}

StreamRequest StreamRank::request_of(const Starting& one, bool room, uint32_t before) const {
  const Step& step = *one.step;
  const bool apart = one.box == 0 && (c_->program->operation_streams >> step.stream & 1) != 0;
  const bool rendezvous = one.box == 0 && !step.held && one.lane->resolved() && !one.lane->carried();
  const PlanHeader& plan = *one.lane->spec().call(one.index).plan->header(one.lane->rank());
  return {step.stream,
          step.held != 0,
          one.lane->resolved() && !one.lane->crosses_blocks(one.index),
          room,
          last_kernels_[step.lane] == step.stream,
          false,
          rendezvous,
          before,
          apart ? one.lane : nullptr,
          one.box,
          plan.block_count == 1 ? 1u + uint32_t(one.index % 8 == 7) : 0};
}

// Under the lock.
StreamEntering StreamRank::enter(const Starting& one, bool joins) {
  SimLane& lane = *one.lane;
  const uint32_t number = one.step->lane;
  enter_lane(lane);
  lanes_.open(lane);
  lane.count_submitted(w_->scheduler.now());
  ++submitted_;
  if (lane.carried()) proxy_.begin_work();
  const bool placed = lane.placed() == one.index && lane.has_work_for_core();
  StreamRequest request = request_of(one, placed, 0);
  request.joins = joins;
  const StreamTicket ticket = driver_->enter(request);
  const Submission submission =
      placed ? lane.place(o_->first_sequence, ticket.path == kByKernel) : Submission{};
  last_kernels_[number] = ticket.path == kByKernel ? one.step->stream : kNoStream;
  tickets_[number].emplace(one.index, ticket);
  ++by_path_[ticket.path];
  taken_by_kernel_ += ticket.call == kPutIntoBox;
  if (ticket.path == kByRendezvous) {
    meeting_[number].emplace(one.index, submission);
  } else if (placed && ticket.path != kByKernel) {
    Submission marked = submission;
    marked.marked = ticket.path == kByMark;
    push(marked);
    driver_->poll();
  }
  Operation operation{};
  if (placed) operation = lane.operation(one.index);
  operation.sequence = o_->first_sequence + one.index;
  return {ticket, &lane.core(), &lane.handover(), lane.arrival(one.index), operation, lane.spec().priority,
          number};
}

void StreamRank::wait_on_stream(const Step& step) {
  SimLane& lane = *lanes_.at(step.lane);
  if (lane.submitted() == 0) return;
  const uint64_t index = lane.submitted() - 1;
  if (index < before_streams_[step.lane]) return;  // of no stream
  const auto may_wait = [&] {
    if (lane.spec().copies) return driver_->may_stand();
    const auto entered = tickets_[step.lane].find(index);
    return driver_->may_hold(entered == tickets_[step.lane].end() ? nullptr : &entered->second, step.stream);
  };
  for (lock(); !may_wait(); lock()) {
    unlock();
    w_->scheduler.sleep();
  }
  const auto ticket = tickets_[step.lane].find(index);
  const bool under_way = ticket != tickets_[step.lane].end();
  const uint32_t watch_blocks = under_way ? driver_->hold(ticket->second, step.stream) : 0;
  unlock();
  // Complete: the stream need not wait; what the host knows of it, the launch of the check hands on.
  if (under_way) driver_->wait_for(step.stream, lane.handover(), o_->first_sequence + index, watch_blocks);
  put_kernel(step.stream, Kernel::Kind::kCheck, step.lane, index);
}

// As Context::wake_watches().
void StreamRank::wake_watches() {
  std::vector<WatchedTicket> all;
  for (SimLane* lane : lanes_.mine())
    for (auto& [index, ticket] : tickets_[lane->number()])
      if (ticket.watches != 0) all.push_back({&ticket, &lane->handover(), o_->first_sequence + index});
  if (!all.empty()) driver_->turn_watches(all);
}

}  // namespace starling::sim
