// Lanes of copies: messages that copy engines move (docs/design/0020-sm-free.md). Such a lane has a region, a
// board and positions as every other one, and nothing on the device: its operations go to the rank's proxy
// when their peers are known and both sides' signatures agree. "On the device" is with the proxy.
#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "base/error.h"
#include "comm/context.h"
#include "comm/transfers.h"
#include "link/carry/proxy.h"

namespace starling {
namespace {

constexpr uint64_t kLeastPatienceNs = 200'000;
constexpr uint64_t kEagerWaitNs = 100'000;
constexpr uint64_t kEngineNapNs = 10'000;

}  // namespace

// ---- the lane -----------------------------------------------------------------------------------------

// Never used again when the lane ends: a stream may come to them later.
void HostLane::open_marks() {
  if (on_streams()) return;
  handover_.depth = kCopyDepth;
  marks_ = reinterpret_cast<uint64_t*>(place_.allocate_shared(kCopyDepth * sizeof(uint64_t)));
  handover_.done = reinterpret_cast<Done*>(place_.allocate_shared(kCopyDepth * sizeof(Done)));
}

// No further than the peers' regions are known: then of two ranks that mean different things the later one
// has seen that before it offers, or takes, a buffer.
Flight* HostLane::next_for_proxy() {
  if (!resolved() || on_device_ == flights_.size()) return nullptr;
  Flight& flight = flights_[on_device_];  // they go in order
  return flight.sequence - flights_.front().sequence < kCopyDepth ? &flight : nullptr;
}

bool HostLane::has_flight(uint64_t sequence) const {
  for (size_t k = 0; k < flights_.size(); ++k)
    if (flights_[k].sequence == sequence) return true;
  return false;
}

device::CopyJob HostLane::begin_copies(Flight& flight) {
  const uint64_t sequence = flight.sequence;
  const Lowered& lowered = flight.lowered;
  const Operation& op = lowered.operation;
  const uint64_t at = sequence % kCopyDepth;
  device::CopyJob job{this,
                      sequence,
                      &shared_->fault,
                      flight.on_stream ? &marks_[at] : nullptr,
                      flight.on_stream ? &handover_.done[at].done : nullptr,
                      {},
                      {}};
  std::byte* const input = op.buffers[uint32_t(BufferKind::kInput)].base;
  std::byte* const output = op.buffers[uint32_t(BufferKind::kOutput)].base;
  const Transfers transfers = transfers_of(lowered, rank(), size());
  const std::byte* const sent = transfers.passes_on ? output : input;
  for (const Transfer& send : transfers.sends)
    for (uint32_t k = 0; k < send.pieces; ++k) {
      const uint64_t at = k * piece_bytes(send);
      job.sends.push_back({offer_of(peers_[send.peer], sequence, rank()),
                           member(send.peer).peer.memory.get(),
                           sent + send.from + at,
                           nullptr,
                           send.pieces == 1 ? send.bytes : std::min(piece_bytes(send), send.bytes - at),
                           {at, k, send.pieces},
                           transfers.passes_on ? 0 : -1});
    }
  // Behind the others: peers wait for those.
  for (const Transfer& own : transfers.own)
    job.sends.push_back({nullptr, nullptr, input + own.from, output + own.to, own.bytes});
  for (const Transfer& receive : transfers.receives)
    job.receives.push_back({offer_of(shared_, sequence, receive.peer), output + receive.to, receive.bytes,
                            op.registrations[uint32_t(BufferKind::kOutput)]});
  for (uint32_t peer = 0; peer < size(); ++peer)
    job.shares_driver |=
        peer != rank() && member(peer).peer.arena->header()->process_nonce == cpu::process_nonce();
  flight.on_device = true;
  ++on_device_;
  return job;
}

CarriedCopyJob HostLane::begin_carried_copies(Flight& flight) {
  const bool sends = rank() == 0;
  const Peer& there = member(1 - rank()).peer;
  if (connector_ == nullptr)
    connector_ = std::make_shared<CarriedConnector>(
        carriers_[1 - rank()], sends, there.way->polls() ? nullptr : &there.arena->header()->daemon,
        flight.sequence);
  const uint64_t at = flight.sequence % kCopyDepth;
  const Operation& op = flight.lowered.operation;
  flight.on_device = true;
  ++on_device_;
  return {this,
          flight.sequence,
          &shared_->fault,
          flight.on_stream ? &marks_[at] : nullptr,
          flight.on_stream ? &handover_.done[at].done : nullptr,
          connector_,
          op.buffers[uint32_t(sends ? BufferKind::kInput : BufferKind::kOutput)].base,
          op.group_bytes};
}

std::string HostLane::copies_text(cpu::CpuMachine& host, const Flight& flight) const {
  if (!flight.on_device) return "";
  const uint64_t next = flight.sequence + 1;
  if (flight.on_stream && !reached(host.load_relaxed(mark(flight.sequence)), next))
    return "; its own stream has not come to it";
  if (carried()) return "";
  std::string text;
  const Transfers transfers = transfers_of(flight.lowered, rank(), size());
  for (const Transfer& send : transfers.sends) {
    const CopyOffer* offer = offer_of(peers_[send.peer], flight.sequence, rank());
    const std::string who = "rank " + std::to_string(member(send.peer).world_rank);
    if (host.load_relaxed(&offer->offered) != next)
      text += "; the stream of " + who + " has not come to it";
    else if (host.load_relaxed(&offer->arrived) != next)
      text += "; the copy to " + who + " has not ended";
  }
  for (const Transfer& receive : transfers.receives)
    if (host.load_relaxed(&offer_of(shared_, flight.sequence, receive.peer)->arrived) != next)
      text += "; nothing has come from rank " + std::to_string(member(receive.peer).world_rank);
  return text;
}

// ---- its context --------------------------------------------------------------------------------------

HostLane& Context::copy_lane(const LaneKey& key, const std::string& name, uint32_t rank,
                             const std::vector<Member>& members, HostLane* control,
                             const monitor::FlightPlace& place) {
  std::unique_ptr<CopyEngine> engine;  // outlives the lock, as in attach()
  std::unique_lock lock(mutex_);
  if (copies_ == nullptr && members.size() > 1) {
    lock.unlock();
    engine = place_->make_copy_engine();
    lock.lock();
  }
  if (copies_ == nullptr && engine != nullptr)
    copies_ = std::make_unique<CopyProxy>(std::move(engine), [this] {
      bool looked = false;
      try {
        looked = poll_once();
      } catch (const Error&) {  // the poller will meet it, too
      }
      if (!looked) cpu::ring(&arena_->header()->host);  // who has the lock may have looked before
    });
  return find_or_make({key, name, 0, rank, members, block_count(), place_->traits().slot_bytes_limit, false,
                       true, control, place, true});
}

void Context::await_room(device::Stream stream) {
  StreamOperations& streams = checked_streams();
  while (!streams.has_room(stream)) std::this_thread::sleep_for(std::chrono::nanoseconds(kFullNapNs));
}

// As submit(), without blocks: the daemon has no part in it, and no caller can run it.
void Context::submit_copies(HostLane& lane, Flight&& flight, const std::string& refused) {
  StreamOperations* streams = flight.on_stream ? &checked_streams() : nullptr;
  place_->make_room();
  std::unique_lock lock(mutex_);
  const bool fresh = lane.shared() == nullptr;
  lane.open(0, 0);
  publish(lock, lane);
  const bool news = lane.resolve() || fresh;
  if (flight.on_stream) lane.open_marks();
  count_submitted(lane, flight, refused);
  while (flight.held && fault_of(lane).kind == FaultKind::kNone && !may_stand(*streams)) {
    lock.unlock();
    if (!poll_once()) std::this_thread::sleep_for(std::chrono::nanoseconds(kFullNapNs));
    lock.lock();
  }
  flight.waited = flight.perhaps_waited = false;
  if (const Fault fault = fault_of(lane); fault.kind != FaultKind::kNone) {
    record_fault(lane, fault);
    end(flight, status_of(fault.kind), fault.text + " (the lane is broken since then)");
    return;
  }
  if (streams != nullptr) {
    flight.entry = streams->enter({flight.stream, flight.held, false, false, false, true});
    flight.entered = true;
  }
  flight.for_proxy = true;
  ++for_proxy_;
  Flight& appended = append(lane, std::move(flight));
  // Before the proxy has it: it may end there.
  const RequestPtr request = appended.request;
  const device::Stream stream = appended.stream;
  const uint64_t sequence = appended.sequence;
  const bool held = appended.held;
  if (streams != nullptr) request->set_place({lane.id(), sequence});
  const bool opens = appended.lowered.opens;
  const bool message = appended.lowered.signature.collective == Collective::kSendRecv;
  expect_rings();
  guarded_for(lane, [&, now = appended.submitted_ns] { feed_copies(lane, now); });
  connect_soon(lane, opens);
  show_poller();
  // A message may be what an any-source receive waits for.
  if (news || message) ring_peers(lane);
  if (streams == nullptr || request->done()) return;
  const Handover handover = lane.handover();
  uint64_t* const mark = lane.mark(sequence);
  lock.unlock();
  streams->mark(stream, mark, sequence + 1);
  if (!held) return;
  await_engine(*request);
  streams->wait_for(stream, handover, sequence, 0);
}

// Before a stream is made to stand for copies. Its caller may be in the driver next, for a library that loads
// kernels, say: then the driver waits for the stream, and lets nobody else in. So what it is still needed for
// comes first; a peer that is late keeps us for so long only, and shorter each time
// (docs/design/0020-sm-free.md).
void Context::await_engine(const Request& request) {
  const uint64_t begin = cpu::monotonic_ns();
  // Relaxed, as below: a hint.
  const uint64_t patience = copy_patience_ns_.load(std::memory_order_relaxed);
  const auto needed = [this] {
    return for_proxy_.load(std::memory_order_relaxed) != 0 || copies_->needs_engine();
  };
  if (!needed()) return;
  while (needed() && !request.done()) {
    const uint64_t waited = cpu::monotonic_ns() - begin;
    if (waited > patience)
      return copy_patience_ns_.store(std::max(patience / 4, kLeastPatienceNs), std::memory_order_relaxed);
    poll_once();
    if (waited < kEagerWaitNs)
      sched_yield();
    else
      std::this_thread::sleep_for(std::chrono::nanoseconds(kEngineNapNs));
  }
  copy_patience_ns_.store(std::min(2 * patience, kMostPatienceNs), std::memory_order_relaxed);
}

void Context::feed_copies(HostLane& lane, uint64_t now_ns) {
  while (Flight* flight = lane.next_for_proxy()) {
    if (!announce(lane, *flight)) return;
    flight_.started(flight->record, now_ns);
    for_proxy_ -= std::exchange(flight->for_proxy, false);
    copies_->make_room();  // what has begun is not refused
    if (lane.carried())
      copies_->add(lane.begin_carried_copies(*flight));
    else
      copies_->add(lane.begin_copies(*flight));
    ++on_device_;
  }
}

// What the proxy is through with. True if there was any.
bool Context::take_copied() {
  if (copies_ == nullptr) return false;
  const std::vector<CopyProxy::Report> reports = copies_->take();
  for (const CopyProxy::Report& report : reports) {
    HostLane& lane = *static_cast<HostLane*>(report.owner);
    if (!report.error.empty()) {
      starling::break_lane(lane, FaultKind::kInternal, report.sequence,
                           "rank " + std::to_string(lane.member(lane.rank()).world_rank) + ": lane '" +
                               lane.name() + "' cannot go on: " + report.error);
      fail_waiting(lane, fault_of(lane));
    }
    if (report.finished) end_copied(lane, report.sequence);
  }
  return !reports.empty();
}

// As complete().
void Context::end_copied(HostLane& lane, uint64_t sequence) {
  if (!lane.has_flight(sequence)) return;  // it ended with its device
  Flight& flight = lane.finish(sequence);
  --on_device_;
  const uint64_t now = cpu::monotonic_ns();
  const Fault fault = fault_of(lane);
  if (fault.kind == FaultKind::kNone) {
    end(flight, STARLING_SUCCESS, "", now);
    return guarded_for(lane, [&] { feed_copies(lane, now); });
  }
  record_fault(lane, fault);
  end_broken(lane, std::move(flight), fault);
  fail_waiting(lane, fault);
}

}  // namespace starling
