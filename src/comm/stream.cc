// The context's part in operations that are ordered on streams. What is called under which lock, and why:
// device/stream_host.h.
#include <algorithm>
#include <array>

#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/context.h"

namespace starling {
namespace {

constexpr uint64_t kPlaceNs =
    100'000'000;  // longest wait for a place in a lane whose stream makes no progress

// device::StreamCall::unit_bytes. In steps: for what is alike one kernel does.
uint32_t unit_bytes_of(const Operation& op) {
  constexpr uint64_t kStep = 1024, kMost = 8 * kStep;
  const uint64_t steps = ceil_div(std::min(op.chunk_bytes, kMost), kStep);
  return op.block_count == 1 ? uint32_t(std::max<uint64_t>(steps, 1) * kStep) : 0;
}

constexpr uint64_t kMeetNs = 20'000'000;  // ranks come to a lane's first operation within so long, mostly

}  // namespace

StreamOperations& Context::checked_streams() {
  StreamOperations* streams = executor_->streams();
  if (streams == nullptr)
    throw Error(Code::unsupported, "an operation on a stream, and the context's device is " + place_->name(),
                "make the context with device cuda:N, or submit without a stream");
  return *streams;
}

device::Stream Context::make_stream(bool urgent) {
  const device::Stream stream = checked_streams().make_stream(urgent);
  const std::lock_guard lock(mutex_);
  if (urgent) operation_streams_.insert(stream);
  return stream;
}

void Context::await_stream(device::Stream stream, bool held) {
  // One that holds nothing may need no daemon, where its lane has operations that stay: that is asked when
  // the lane is known (prepare_for_stream).
  if (!held) return await_room(stream);
  StreamOperations& streams = checked_streams();
  for (;;) {
    if (streams.may_enter({stream, held, true, true, false})) return;
    std::this_thread::sleep_for(std::chrono::nanoseconds(kFullNapNs));
  }
}

// What the caller of an operation has waited for.
struct Context::StreamWait {
  uint64_t begin = 0;
  uint64_t since = 0;  // the lane's oldest operation is the same
  uint64_t oldest = 0;
};

// `before`: operations that will enter with it, and before it; `first`: the first of them.
bool Context::may_enter_stream(const Departing& departing, uint32_t before, device::StreamCall& first,
                               StreamWait& wait) {
  HostLane& lane = *departing.lane;
  const Flight& flight = *departing.flight;
  StreamOperations& streams = *executor_->streams();
  // While all that the lane has on the device stands in streams, the caller is ahead of its GPU, as it is
  // when a launch queue is full: it waits for a place. A start kernel that waits for a peer ends with its
  // budget, and leaves the operation to a daemon: then nobody waits here for that peer.
  if (lane.full() && streams.only_kernels()) {
    const uint64_t now = cpu::monotonic_ns();
    if (lane.flights().front().sequence != wait.oldest) wait.since = now;
    wait.oldest = lane.flights().front().sequence;
    if (now - wait.since < kPlaceNs) return false;
  }
  // Connected, an operation that holds its stream can do without a daemon. Who has waited in vain goes on:
  // two ranks may come to two lanes in different orders.
  if (flight.held && !lane.resolved()) {
    if (lane.resolve()) meet_peers(lane);
    if (!lane.resolved() && cpu::monotonic_ns() < wait.begin + kMeetNs) return false;
  }
  device::StreamCall call{flight.stream,
                          flight.held,
                          needs_no_host(lane, flight),
                          lane.has_room(),
                          false,
                          false,
                          lane.wants_rendezvous(flight),
                          before,
                          waited_for_later(lane, flight)};
  if (before == 0)
    first = call;
  else
    call.first = &first;
  return streams.may_enter(call);
}

// After it the operations may enter, as long as the lock is held; but for those whose lanes are broken.
void Context::prepare_for_stream(std::unique_lock<QuickMutex>& lock, std::span<const Departing> departing) {
  const uint64_t begin = departing.front().flight->submitted_ns;
  std::array<StreamWait, device::kMostTogether> waits;
  for (size_t k = 0; k < departing.size(); ++k) waits[k] = {begin, begin, 0};
  const auto all_may = [&] {
    device::StreamCall first{};
    uint32_t before = 0;
    for (uint32_t k = 0; k < departing.size(); ++k) {
      if (is_broken(*departing[k].lane)) continue;
      if (!may_enter_stream(departing[k], before++, first, waits[k])) return false;
    }
    return true;
  };
  while (!all_may()) {
    lock.unlock();
    if (!poll_once()) std::this_thread::sleep_for(std::chrono::nanoseconds(kFullNapNs));
    lock.lock();
  }
  for (const Departing& one : departing) {
    if (one.lane->on_streams()) continue;
    one.lane->open_to_streams();
    turnless_.push_back(one.lane);
    give_turns();
  }
}

// May an operation of the lane that holds its stream do without a daemon? Its lane has to be connected; and
// what the CPU submitted needs a daemon, whose launch could stand in the driver behind a call of the program
// that waits for that stream.
// And blocks that wait for others of their own operation may have the places that those need.
bool Context::needs_no_host(const HostLane& lane, const Flight& flight) const {
  return needs_no_host(lane) && !flight.lowered.plan->crosses_blocks();
}
bool Context::needs_no_host(const HostLane& lane) const { return lane.resolved() && for_callers_ == 0; }

// StreamCall::lane. In a stream of the program's other things may stand behind the operation, replays of
// graphs among them, which need not wait for it.
const void* Context::waited_for_later(const HostLane& lane, const Flight& flight) const {
  return operation_streams_.contains(flight.stream) ? &lane : nullptr;
}

// May a stream stand for an operation that copy engines move? What the CPU submitted needs a daemon, too.
bool Context::may_stand(StreamOperations& streams) const {
  return for_callers_ == 0 ? streams.may_stand() : streams.may_hold();
}

// What the CPU submits while nothing is under way, or a few such operations: a start kernel is there sooner
// than a daemon, or than one that is there has read of it, and leaves to a daemon what is stuck, as others
// do. Each has a stream of ours for itself, which holds nothing, so it stands behind none of the others.
// Small ones take the first, where a kernel may have stayed for them (device/call_host.h), others the last.
// Beside anything else a launch might have to wait: then it goes the usual way.
void Context::begin_as_kernel(HostLane& lane, Flight& flight) {
  if (under_way_ != called_ || lane.carried() || !lane.resolved()) return;
  // Marks of one lane that several streams write may come in any order.
  if (settings().stream_hold == StreamHold::kDoorbell) return;
  const auto is_free = [](const CallStream& one) { return !one.taken; };
  const bool small = unit_bytes_of(flight.lowered.operation) != 0;
  const auto first = std::find_if(call_streams_.begin(), call_streams_.end(), is_free);
  if (first == call_streams_.end()) return;
  const auto last = std::find_if(call_streams_.rbegin(), call_streams_.rend(), is_free);
  const CallStream& spare = small ? *first : *last;
  if (!lane.on_streams()) {
    lane.open_to_streams();
    turnless_.push_back(&lane);
  }
  give_turns();
  if (!lane.has_room()) return;
  flight.on_stream = flight.called = true;
  flight.stream = spare.stream;
  flight.box = uint8_t(1 + (&spare - call_streams_.data()));
}

void Context::count_called(const Flight& flight, bool ended) {
  called_ += ended ? -1 : 1;
  for (CallStream& one : call_streams_)
    if (one.stream == flight.stream) one.taken = !ended;
}

// Blocks may still read submissions of operations that are complete: with turns they would wait for those.
void Context::give_turns() {
  std::erase_if(turnless_, [this](HostLane* lane) {
    if (!lane->idle_on_device() || !executor_->streams()->submissions_read()) return false;
    lane->make_turns();
    if (lane->busy()) guarded_for(*lane, [&] { feed(*lane, cpu::monotonic_ns()); });
    return true;
  });
}

// The flight, whose launch is put into the stream once the lock is free; null if the operation has failed at
// once. Its caller, who has the request too, learns that from it.
const Flight* Context::enter_stream(HostLane& lane, Flight& flight) {
  Request* const request = flight.request.get();
  const uint64_t sequence = flight.sequence;
  device::StreamEntry entry{};
  guarded_for(lane, [&] {
    const bool placed = lane.next_for_device() == &flight;
    const bool follows = lane.last_kernel() == flight.stream;
    flight.entry = executor_->streams()->enter(
        {flight.stream, flight.held, needs_no_host(lane, flight), placed, follows, false,
         lane.wants_rendezvous(flight), 0, waited_for_later(lane, flight), nullptr, flight.box,
         unit_bytes_of(flight.lowered.operation), flight.submitted_ns, flight.joins});
    flight.entered = true;
    entry = flight.entry;
    if (settings().guard == Guard::kWatch && !flight.held && flight.by_kernel())
      began_at_ns_ = flight.submitted_ns;
    lane.note_entry(flight);
    if (!flight.called) request->set_place({lane.id(), sequence});  // streams do not wait for others
    if (flight.second != nullptr && !flight.called) flight.second->set_place({lane.id(), sequence});
    feed(lane, flight.submitted_ns);
  });
  if (!request->done()) {
    if (flight.called && flight.by_kernel()) request->tell_by(lane.handover(), sequence);
    return &flight;
  }
  executor_->streams()->abandon(entry);
  return nullptr;
}

// Once two looks in a row found that none is to be woken: one may have found the lock taken.
void Context::report_woken() {
  if (woken_at_ns_ == 0) return;
  if (looks_since_woken_++ == 0) woken_until_ns_ = cpu::monotonic_ns();
  if (looks_since_woken_ < 2) return;
  log(LogLevel::info, "no streams are woken any more, ", (woken_until_ns_ - woken_at_ns_) / 1000,
      " us after the first: the daemon came, or nothing is left for it");
  woken_at_ns_ = 0;
}

// A daemon does not come: a stream that stands with a watch has a block at hand.
void Context::wake_watches() {
  StreamOperations* const streams = executor_->streams();
  if (streams == nullptr) return;
  const bool needed = streams->wakes_watches();
  if (!needed && woken_at_ns_ == 0) return;
  device::WatchLook look;
  for_all_lanes([&](HostLane& lane) {
    if (!lane.on_streams()) return;
    for (Flight& flight : lane.flights())
      if (flight.entered && flight.entry.watches != 0)
        look.add(host_machine_, {&flight.entry, &lane.handover(), flight.sequence, &lane});
  });
  const device::Watched* const woken = streams->turn_watches(look, needed);
  if (!needed) return report_woken();
  looks_since_woken_ = 0;
  if (woken == nullptr || woken_at_ns_ != 0) return;
  woken_at_ns_ = cpu::monotonic_ns();
  const auto& lane = *static_cast<const HostLane*>(woken->owner);
  log_rank(LogLevel::info, int(lane.member(lane.rank()).world_rank),
           "the daemon does not come: woken in its place are streams that wait for operation ",
           woken->sequence, " of lane '", lane.name(), "', and if they do not stand, others");
}

bool Context::wait_on_stream(const Request& request, device::Stream stream) {
  StreamOperations& streams = checked_streams();
  if (request.captured()) return wait_for_captured(request, stream);
  if (request.done()) return false;
  const std::optional<RequestPlace> place = request.place();
  if (!place)
    throw Error(Code::invalid_argument, "a stream is to wait for an operation that was submitted without one",
                "submit it on a stream, or wait for it on the CPU");
  poll_once();  // complete already?
  std::unique_lock lock(mutex_);
  // While the request is not done its lane is there.
  const auto entry = [&]() -> device::StreamEntry* {
    for (Flight& flight : lanes_by_id_[place->lane]->flights())
      if (flight.sequence == place->sequence && flight.entered) return &flight.entry;
    return nullptr;
  };
  const auto may_hold = [&] {
    const HostLane& lane = *lanes_by_id_[place->lane];
    if (lane.alone()) return true;  // for what the program itself has put before it
    if (lane.by_copies()) return may_stand(streams);
    const device::StreamEntry* const entered = entry();
    return entered != nullptr ? streams.may_hold(*entered, stream, needs_no_host(lane)) : streams.may_hold();
  };
  while (!request.done() && !may_hold()) {
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::nanoseconds(kFullNapNs));
    lock.lock();
  }
  if (request.done()) return false;  // its lane may be gone
  HostLane& lane = *lanes_by_id_[place->lane];
  if (lane.alone() && stands_behind(lane, place->sequence, stream)) return true;
  device::StreamEntry* const entered = entry();
  const uint32_t watch_blocks = entered != nullptr ? streams.hold(*entered, stream, needs_no_host(lane)) : 0;
  const Handover handover = lane.handover();
  const bool by_copies = lane.by_copies() && !lane.alone();
  lock.unlock();
  if (by_copies) await_engine(request);
  streams.wait_for(stream, handover, place->sequence, watch_blocks);
  return true;
}

}  // namespace starling
