// Operations that streams capture into graphs: their lanes, and the replays of those, which nobody announces.
// Why it is so: docs/design/0019-cuda-graphs.md.
#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/seconds.h"
#include "comm/context.h"
#include "device/handover.h"

namespace starling {

// ---- the lane -----------------------------------------------------------------------------------------

// Its numbers begin as if one round of the rings had been: targets are computed from the number alone, and
// the first operation has one before it.
void HostLane::begin_captures(uint64_t capture, uint64_t timeout_ns,
                              std::shared_ptr<std::atomic<bool>> dropped) {
  captures_ = std::make_unique<Captures>();
  Captures& c = *captures_;
  c.capture = capture;
  c.timeout_ns = timeout_ns;
  c.dropped = std::move(dropped);
  c.first = c.begun = c.completed = depth();
  order_ = device::LaneOrder::of_capture();
  open_to_streams();
  handover_.begun = reinterpret_cast<uint64_t*>(place_.allocate_shared(sizeof(uint64_t)));
  *handover_.begun = c.first;
  const std::vector<uint64_t> finished(depth(), handover_.width);
  place_.write(image_.finished, finished.data(), finished.size() * sizeof(uint64_t));
  std::vector<LaneBlock> blocks(options_.grid, LaneBlock{});
  for (LaneBlock& block : blocks) {
    block.context.sequence = ~uint64_t(0);
    block.next = block.fetched = c.first;
    block.progress = c.first << 40;
  }
  place_.write(image_.blocks, blocks.data(), blocks.size() * sizeof(LaneBlock));
  // Start kernels read the tables where they are: they are the GPU's already (bind_captured).
  image_.tables = nullptr;
  place_.write(device_, &image_, sizeof image_);
  make_turns();
}

// Nobody reads it any more: the graph is gone, or its context is.
void HostLane::release_captures() {
  for (const Captures::Piece& piece : captures_->pieces) place_.release(piece.memory, piece.bytes);
  if (handover_.ready != nullptr)
    place_.release(reinterpret_cast<std::byte*>(handover_.ready), sizeof(uint64_t));
  if (handover_.done != nullptr)
    place_.release_shared(reinterpret_cast<std::byte*>(handover_.done), depth() * sizeof(Done));
  if (handover_.begun != nullptr)
    place_.release_shared(reinterpret_cast<std::byte*>(handover_.begun), sizeof(uint64_t));
}

std::byte* HostLane::captured_piece(uint64_t bytes) {
  std::byte* memory = place_.allocate(bytes);
  captures_->pieces.push_back({memory, bytes});
  return memory;
}

// As bind_memory(), in memory that lives as long as the graph.
void HostLane::bind_captured(Flight& flight) {
  flight.sequence = next_sequence_;  // in the capture; in replays it has others
  flight.lane = id();
  bind_plan(flight, 0);
  Operation& op = flight.lowered.operation;
  bind_own_buffer(flight, uint32_t(flight.sequence % depth()));
  const PlanHeader* plan = flight.lowered.plan->header(rank());
  const uint64_t scratch = plan->tile_scratch != 0 ? 0 : scratch_bytes(*plan, op.chunk_bytes, 0);
  if (captures_->scratch.bytes < scratch) captures_->scratch = {captured_piece(scratch), scratch};
  if (scratch > 0) op.buffers[uint32_t(BufferKind::kScratch)].base = captures_->scratch.memory;
  for (BufferKind kind : {BufferKind::kInput, BufferKind::kOutput}) {
    const auto& groups =
        kind == BufferKind::kInput ? flight.lowered.input_groups : flight.lowered.output_groups;
    if (groups.empty()) continue;
    const uint64_t bytes = groups.size() * sizeof(GroupExtent);
    std::byte* table = captured_piece(bytes);
    place_.write(table, groups.data(), bytes);
    op.buffers[uint32_t(kind)].groups = reinterpret_cast<const GroupExtent*>(table);
  }
  auto& numbers = captures_->numbers;
  if (numbers.size() == captures_->operations.size())  // none was left by one that was not captured then
    numbers.push_back(reinterpret_cast<uint64_t*>(captured_piece(sizeof(uint64_t))));
}

StreamLaunch HostLane::capture(Flight&& flight) {
  ++next_sequence_;
  Operation& op = flight.lowered.operation;
  const PlanHeader* plan = flight.lowered.plan->header(rank());
  // A plan's blocks that come by a fence do so in every replay: as if something were on the device. Plans
  // with scratch of the operation's are not canonical, so each is fenced, and one piece of memory is enough
  // for all.
  op.fence_previous = order_.place(*plan, 1);
  captures_->operations.push_back(std::move(flight));
  return launch_of(captures_->operations.back());
}

bool HostLane::look_at_replays(cpu::CpuMachine& host, uint64_t now_ns) {
  Captures& c = *captures_;
  const uint64_t begun_before = c.begun;
  const uint64_t completed_before = c.completed;
  // Relaxed: only a count.
  c.begun = host.load_relaxed(handover_.begun);
  while (c.completed != c.begun && device::was_told(host, handover_, c.completed)) ++c.completed;
  if (c.begun == begun_before && c.completed == completed_before) return false;
  if (c.completed != completed_before || completed_before == begun_before) c.since_ns = now_ns;
  // Relaxed: for peers that time out, and say who has not come so far.
  std::atomic_ref<uint64_t>(shared_->submitted).store(c.begun, std::memory_order_relaxed);
  return true;
}

const Flight& HostLane::replayed() const {
  return captures_->operations[(captures_->completed - captures_->first) % captures_->operations.size()];
}

// ---- its context --------------------------------------------------------------------------------------

std::optional<uint64_t> Context::capture_of(device::Stream stream) {
  StreamOperations* streams = executor_->streams();
  return streams == nullptr ? std::nullopt : streams->capture_of(stream);
}

bool Context::has_lane(const LaneKey& key) {
  const std::lock_guard lock(mutex_);
  return lanes_.count(key) != 0;
}

// Called on the capturing thread. What the driver does beside goes by relaxed mode (cuda/device_guard.h).
// What may be refused comes first, of all operations: what throws has captured none of them.
void Context::capture(std::span<Departure> departures, uint64_t capture) {
  StreamOperations& streams = checked_streams();
  const device::Stream stream = departures.front().flight.stream;
  std::vector<std::string> refused;
  for (Departure& one : departures) {
    refused.push_back(check_buffers(*one.lane, one.flight.lowered));
    one.flight.submit_at(cpu::monotonic_ns());
  }
  place_->make_room();
  std::unique_lock lock(mutex_);
  check_captures(streams, departures);
  std::vector<bool> news;
  for (const Departure& one : departures) news.push_back(open_lane(lock, *one.lane, one.flight.lowered));
  for (const Departure& one : departures)
    if (one.lane->captures() == nullptr) begin_captures(lock, streams, one, capture);
  for (size_t k = 0; k < departures.size(); ++k) {
    HostLane& lane = *departures[k].lane;
    if (!refused[k].empty())
      starling::break_lane(lane, FaultKind::kMismatch, lane.next_sequence(),
                           "rank " + std::to_string(lane.member(lane.rank()).world_rank) + ": " + refused[k]);
  }
  std::vector<Capturing> capturing;
  for (size_t k = 0; k < departures.size(); ++k) {
    Departure& one = departures[k];
    const Fault fault = fault_of(*one.lane);
    if (fault.kind == FaultKind::kNone)
      capturing.push_back({&one, one.flight.request, one.flight.held, news[k]});
    else
      fail(one.flight.request, status_of(fault.kind), fault.text + " (the lane is broken since then)");
  }
  for (const Capturing& one : capturing) one.departure->lane->bind_captured(one.departure->flight);
  take_parked_places(capturing);
  std::vector<Capturing> captured;
  std::vector<CapturedLaunch> launches;
  for (Capturing& one : capturing) {
    if (!take_over_captured(streams, one)) continue;
    launches.push_back(one.launch);
    captured.push_back(std::move(one));
  }
  lock.unlock();
  if (captured.empty()) return;
  place_->flush();  // what kernels of the graph read
  streams.capture(launches);
  // Behind all of them: an operation that is waited for stands before none that begins with it.
  for (const Capturing& one : captured)
    if (one.held && one.launch.launch.entry.gate == 0)
      streams.capture_wait(stream, one.launch.launch.handover, one.launch.number);
  for (const Capturing& one : captured) {
    const RequestPtr& request = one.request;
    request->set_captured({capture, one.launch.number}, one.launch.launch.handover);
    if (request->complete(STARLING_SUCCESS, "") && request->callback_is_ours()) callbacks_.push(request);
  }
}

void Context::check_captures(const StreamOperations& streams, std::span<const Departure> departures) const {
  if (!streams.may_capture())
    throw Error(Code::unsupported,
                "operations cannot be captured with CUDA_DEVICE_MAX_CONNECTIONS=1, nor with "
                "STARLING_STREAM_HOLD=doorbell",
                "unset it, or leave collectives out of the graph");
  for (const Departure& one : departures)
    if (one.lane->carried())  // replays between hosts were not seen to work
      throw Error(Code::unsupported, "a graph captures an operation between hosts",
                  "leave it out of the graph");
}

// Of the lane's first operation. Lets go of the lock meanwhile; the lane is this capture's alone.
void Context::begin_captures(std::unique_lock<QuickMutex>& lock, StreamOperations& streams,
                             const Departure& first, uint64_t capture) {
  HostLane& lane = *first.lane;
  const Flight& flight = first.flight;
  auto dropped = std::make_shared<std::atomic<bool>>(false);
  lock.unlock();
  streams.watch_graph(flight.stream, dropped);
  lock.lock();
  lane.begin_captures(capture, flight.timeout_ns, std::move(dropped));
  twins_.push_back(&lane);
  if (lane.carried()) proxy_->begin_work();  // a replay tells nobody when it begins
}

// Each of a lane of its own, which holds so many under way at once: one, if each holds its stream, and else
// one more for each that does not.
void Context::take_parked_places(std::span<const Capturing> capturing) {
  const auto more = [this](const Capturing& one) {
    const uint32_t places = one.departure->lane->captures()->places;
    const uint32_t wanted = places == 0 ? (one.held ? 1 : 2) : places + (one.held ? 0 : 1);
    return std::min(wanted, place_->traits().lane_depth) - places;
  };
  uint32_t all = 0;
  for (const Capturing& one : capturing) all += more(one);
  if (parked_places_ + all > kCapturedPlaces)
    throw Error(Code::exhausted, "graphs hold more operations than a GPU's daemon can be left with",
                "wait for each operation where it is called (async_op=False), or keep fewer graphs");
  for (const Capturing& one : capturing) one.departure->lane->captures()->places += more(one);
  parked_places_ += all;
}

// False: peers call something else, and the request has failed.
bool Context::take_over_captured(StreamOperations& streams, Capturing& one) {
  HostLane& lane = *one.departure->lane;
  Captures& captures = *lane.captures();
  if (one.held && !captures.gate_asked) {
    captures.gate_asked = true;
    captures.gate = streams.take_gate();
  }
  one.departure->flight.request = nullptr;  // it ends here, and its operation runs in each replay
  uint64_t* const number = captures.numbers.back();
  one.launch = {lane.capture(std::move(one.departure->flight)), number, &captures.order};
  one.launch.launch.scheduling = memory_.scheduling();
  one.launch.launch.entry.gate = one.held && captures.gate;
  const Flight& captured = captures.operations.back();
  if (!announce(lane, captured)) {
    const Fault fault = fault_of(lane);
    fail(one.request, status_of(fault.kind), fault.text);
    return false;
  }
  connect_soon(lane, captured.lowered.opens);
  if (one.news) ring_peers(lane);
  show_poller();
  return true;
}

bool Context::wait_for_captured(const Request& request, device::Stream stream) {
  StreamOperations& streams = checked_streams();
  const CapturedPlace& place = request.captured()->place;
  if (streams.capture_of(stream) != place.capture)
    throw Error(Code::invalid_argument,
                "a stream is to wait for an operation of a graph, and is not part of its capture",
                "wait inside of the capture; what comes behind a replay is ordered by the replay's stream");
  streams.capture_wait(stream, request.captured()->handover, place.number);
  return true;
}

// Whatever a replay begins, it tells nobody: so the poller looks.
bool Context::look_at_replays() {
  if (twins_.empty()) return false;
  bool any = false;
  replaying_ = false;
  const uint64_t now = cpu::monotonic_ns();
  for (HostLane* twin : twins_) {
    if (twin->look_at_replays(host_machine_, now)) {
      any = true;
      // A block that completed an operation of a broken lane may have overwritten the poison.
      if (told_fault(*twin).kind != FaultKind::kNone) release_streams(*twin);
    }
    replaying_ |= twin->replaying();
  }
  executor_->streams()->note_replays(replaying_);
  return any;
}

// Of one whose replay is under way.
void Context::maintain_replay(HostLane& twin, uint64_t now) {
  const Captures& captures = *twin.captures();
  if (captures.timed_out(now))
    starling::break_lane(twin, FaultKind::kTimeout, captures.completed, replay_timeout_text(twin));
  else if (const std::string why = twin.replayed().lowered.opens ? twin.refusal() : ""; !why.empty())
    starling::break_lane(twin, FaultKind::kInternal, captures.completed, why);
  else
    return check_peers(twin, now);
  fail_waiting(twin, fault_of(twin));
}

std::string Context::replay_timeout_text(const HostLane& twin) {
  const Captures& captures = *const_cast<HostLane&>(twin).captures();
  const uint64_t count = captures.operations.size();
  const uint64_t at = captures.completed - captures.first;
  std::string text = "rank " + std::to_string(twin.member(twin.rank()).world_rank) + ": " +
                     text_of(twin.replayed().lowered) + " in lane '" + twin.name() + "', operation " +
                     std::to_string(at % count + 1) + " of " + std::to_string(count) + " in its replay " +
                     std::to_string(at / count + 1) + ", did not finish within " +
                     seconds(captures.timeout_ns);
  for (uint32_t peer = 0; peer < twin.size(); ++peer) {
    if (peer == twin.rank()) continue;
    const LaneShared* shared = twin.peer_shared(peer);
    const bool came =
        shared != nullptr && host_machine_.load_relaxed(&shared->submitted) > captures.completed;
    text += "; rank " + std::to_string(twin.member(peer).world_rank) +
            (shared == nullptr ? " has not captured it"
             : came            ? " came to it too"
                               : " has not come to it");
  }
  return text;
}

// Graphs that are gone take their lanes along. Memory follows when no block can look at it (closed_lanes_).
void Context::remove_twins() {
  const std::vector<HostLane*> twins = twins_;
  for (HostLane* twin : twins) {
    if (twin->may_replay() || twin->replaying()) continue;
    if (Fault fault = fault_of(*twin); fault.kind != FaultKind::kNone)
      faults_of_gone_.emplace(twin->key(), std::move(fault));
    remove(*twin);
  }
}

// Of a lane that goes: replays that come yet find it broken, and let their streams go on.
void Context::end_captures(HostLane& twin) {
  std::erase(twins_, &twin);
  if (twin.carried()) proxy_->end_work();
  if (twins_.empty()) {
    replaying_ = false;
    executor_->streams()->note_replays(false);
  }
  if (twin.captures()->gate) executor_->streams()->give_gate();
  executor_->streams()->end_order(twin.captures()->order);
  parked_places_ -= twin.captures()->places;
}

}  // namespace starling
