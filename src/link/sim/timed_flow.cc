#include "link/sim/timed_flow.h"

#include <algorithm>
#include <cstring>

#include "link/path.h"
#include "link/receiver.h"
#include "link/sender.h"

namespace starling::link::sim {
namespace {

constexpr uint64_t kMostQueuedBytes = 1 << 19;  // of a connection, not sent yet: as a socket's
constexpr uint64_t kCloseNs = 1'000;
constexpr uint64_t kMostFenceNs = 500'000;
constexpr uint64_t kHeaderBytes = 64;

}  // namespace

struct TimedFlow::Frame {
  enum class Kind : uint8_t { kHello, kTransfer, kMessage, kEnd };
  Kind kind;
  uint32_t epoch = 0;
  uint64_t sequence = 0;
  LinkMessage message{};
  std::vector<std::byte> bytes = {};  // of a transfer, from when it leaves
  uint64_t size = kHeaderBytes;
  bool doubled = false;
  uint64_t departs_ns = 0;
  uint64_t arrives_ns = 0;
};

struct TimedFlow::Stream {
  std::deque<Frame> frames;
  uint64_t retry_ns = 0;
  bool scheduled = false;
};

// One incarnation of a path.
struct TimedFlow::Connection {
  uint32_t path;
  uint32_t incarnation;
  bool connecting = false;
  bool sender_open = false;
  bool greeted = false;  // the receiver has heard of it
  bool receiver_open = false;
  uint32_t caller = 0;  // address
  uint32_t callee = 0;
  uint64_t queued_bytes = 0;
  Stream streams[2] = {};  // to the sender, from it
};

class TimedFlow::SendingSide : public Link {
 public:
  explicit SendingSide(TimedFlow& flow) : flow_(flow) {}
  bool post(uint32_t path, uint32_t epoch, uint64_t sequence) override {
    const ConnectionPtr& connection = flow_.outgoing_[path];
    if (!connection->sender_open || connection->queued_bytes >= kMostQueuedBytes) return false;
    if (!flow_.takes_its_share(path)) return false;
    Frame frame{.kind = Frame::Kind::kTransfer, .epoch = epoch, .sequence = sequence};
    frame.size += flow_.program_.source(sequence).size();
    connection->queued_bytes += frame.size;
    if (auto* recorder = flow_.options_.recorder)
      recorder->posted(path, sequence, frame.size, flow_.network_.now_ns());
    flow_.transmit(connection, true, std::move(frame));
    return true;
  }
  void send(uint32_t path, const LinkMessage& message) override {
    const ConnectionPtr& connection = flow_.outgoing_[path];
    if (connection->sender_open)
      flow_.transmit(connection, true, {.kind = Frame::Kind::kMessage, .message = message});
  }
  void close(uint32_t path) override {
    const ConnectionPtr connection = flow_.outgoing_[path];
    if (flow_.options_.recorder != nullptr) flow_.options_.recorder->closed(path);
    // What has not left yet never will: its source is free.
    auto& frames = connection->streams[1].frames;
    std::erase_if(frames, [&](const Frame& frame) { return frame.departs_ns > flow_.network_.now_ns(); });
    if (connection->sender_open) flow_.transmit(connection, true, {.kind = Frame::Kind::kEnd});
    connection->sender_open = connection->connecting = false;
    flow_.network_.at(flow_.network_.now_ns() + kCloseNs, [flow = &flow_, connection] {
      flow->to_sender(path_event(EventKind::kClosed, connection->path, connection->incarnation));
    });
  }
  void open(uint32_t path, uint32_t incarnation) override {
    flow_.outgoing_[path] = std::make_shared<Connection>(Connection{path, incarnation, true});
    flow_.connect(flow_.outgoing_[path]);
  }
  void arm(Timer timer, uint32_t path, uint32_t step) override {
    const uint64_t end = flow_.network_.now_ns() + tcp::Timers::length(flow_.options_.lengths, timer, step);
    flow_.timers_[1].arm(timer, path, end);
    flow_.network_.at(end, [flow = &flow_] { flow->expire(true); });
  }
  void disarm(Timer timer, uint32_t path) override { flow_.timers_[1].disarm(timer, path); }

 private:
  TimedFlow& flow_;
};

class TimedFlow::ReceivingSide : public Link {
 public:
  explicit ReceivingSide(TimedFlow& flow) : flow_(flow) {}
  bool post(uint32_t, uint32_t, uint64_t) override {
    flow_.report("the receiver posts");
    return false;
  }
  void send(uint32_t path, const LinkMessage& message) override {
    const ConnectionPtr& connection = flow_.incoming_[path];
    if (connection->receiver_open)
      flow_.transmit(connection, false, {.kind = Frame::Kind::kMessage, .message = message});
  }
  // The fence takes its time, as a card's does; then nothing lands any more, and what has landed was told.
  void close(uint32_t path) override {
    const ConnectionPtr connection = flow_.incoming_[path];
    if (connection->receiver_open) flow_.transmit(connection, false, {.kind = Frame::Kind::kEnd});
    const uint64_t fence_ns = flow_.network_.random().between(0, kMostFenceNs);
    flow_.network_.at(flow_.network_.now_ns() + fence_ns, [flow = &flow_, connection] {
      connection->receiver_open = false;
      flow->to_receiver(path_event(EventKind::kClosed, connection->path, connection->incarnation));
    });
  }
  void open(uint32_t, uint32_t) override { flow_.report("the receiver opens"); }
  void arm(Timer timer, uint32_t path, uint32_t step) override {
    const uint32_t of_idle = timer == Timer::kWatchdog ? 1 : step;  // as tcp/receiving_flow.cc
    const uint64_t end =
        flow_.network_.now_ns() + tcp::Timers::length(flow_.options_.lengths, timer, of_idle);
    flow_.timers_[0].arm(timer, path, end);
    flow_.network_.at(end, [flow = &flow_] { flow->expire(false); });
  }
  void disarm(Timer timer, uint32_t path) override { flow_.timers_[0].disarm(timer, path); }

 private:
  TimedFlow& flow_;
};

TimedFlow::TimedFlow(TimedNetwork& network, const TimedFlowOptions& options, FlowProgram& program)
    : network_(network),
      options_(options),
      program_(program),
      sender_(new_sender(network.path_count(), options.policy, options.probation)),
      receiver_(new_receiver(network.path_count(), options.policy)) {
  for (uint32_t p = 0; p < network.path_count(); ++p) {
    Connection open{p, 1};
    open.sender_open = open.greeted = open.receiver_open = true;
    outgoing_[p] = incoming_[p] = std::make_shared<Connection>(std::move(open));
  }
  network.add(*this);
  handle_at_sender({.kind = EventKind::kOffered});
  Event expecting{.kind = EventKind::kExpecting};
  expecting.sequence = 1;
  handle_at_receiver(expecting);
}

TimedFlow::~TimedFlow() = default;

void TimedFlow::offer(uint64_t end) {
  if (end <= sender_.posted) return;
  Event event{.kind = EventKind::kOffered};
  event.sequence = end;
  handle_at_sender(event);
}

bool TimedFlow::takes_its_share(uint32_t path) const {
  PathSet open = 0;
  for (uint32_t p = 0; p < network_.path_count(); ++p)
    if (outgoing_[p]->sender_open) open |= bit(p);
  return has_least_under_way(sender_, heard_, open, path, kEvenBytes,
                             [&](uint64_t sequence) { return program_.source(sequence).size(); });
}

// ---- who hears -----------------------------------------------------------------------------------------
void TimedFlow::to_sender(const Event& event) {
  network_.to_rank(rank_of(true), [this, event] { handle_at_sender(event); });
}
void TimedFlow::to_receiver(const Event& event) {
  network_.to_rank(rank_of(false), [this, event] { handle_at_receiver(event); });
}

void TimedFlow::handle_at_sender(const Event& event) {
  const bool report =
      event.kind == EventKind::kMessage && LinkMessageKind(event.message.kind) == LinkMessageKind::kReport;
  if (report) heard_.note(event.message);
  if (report && options_.recorder != nullptr)
    options_.recorder->landed(event.message.done, event.message.landed,
                              network_.now_ns() - uint64_t(event.message.held_us) * 1000);
  SendingSide side(*this);
  options_.core->sender(sender_, side, event);
  check();
}

void TimedFlow::handle_at_receiver(const Event& event) {
  ReceivingSide side(*this);
  options_.core->receiver(receiver_, side, event);
  for (; accepted_ < receiver_.done; ++accepted_) {
    landed_.erase(accepted_);
    program_.accept(accepted_);
  }
  check();
}

// In its turn, like what comes: a rank that is late hears first what had come in time.
void TimedFlow::expire(bool sending) {
  const uint64_t now = network_.now_ns();
  if (timers_[sending].next() > now) return;
  network_.to_rank(rank_of(sending), [this, sending, now] {
    for (Event event{}; timers_[sending].expire(now, event);)
      sending ? handle_at_sender(event) : handle_at_receiver(event);
  });
}

// ---- frames --------------------------------------------------------------------------------------------
void TimedFlow::transmit(const ConnectionPtr& connection, bool forward, Frame frame) {
  const uint32_t path = connection->path, from = rank_of(forward);
  const WireSettings& wire = network_.wire(path, from);
  if (frame.kind == Frame::Kind::kMessage) frame.size += sizeof frame.message;
  std::tie(frame.departs_ns, frame.arrives_ns) = network_.send(path, from, frame.size);
  // A source is read when the frame leaves.
  if (frame.kind == Frame::Kind::kTransfer)
    network_.at(frame.departs_ns, [this, connection, sequence = frame.sequence, epoch = frame.epoch] {
      auto& frames = connection->streams[1].frames;
      const auto left = std::find_if(frames.begin(), frames.end(), [&](const Frame& f) {
        return f.kind == Frame::Kind::kTransfer && f.sequence == sequence && f.epoch == epoch;
      });
      if (left == frames.end()) return;
      const auto source = program_.source(sequence);
      left->bytes.assign(source.begin(), source.end());
      connection->queued_bytes -= left->size;
      if (connection->sender_open)
        to_sender(path_event(EventKind::kCompleted, connection->path, connection->incarnation));
    });
  const bool report = frame.kind == Frame::Kind::kMessage && !forward;
  frame.doubled = frame.kind == Frame::Kind::kMessage && network_.random().chance(wire.doubled);
  if (report && network_.random().chance(wire.late))
    return arrive_later(connection, forward, frame.arrives_ns, frame);
  Stream& stream = connection->streams[forward];
  stream.frames.push_back(std::move(frame));
  if (stream.frames.size() == 1) attempt_at(connection, forward, stream.frames.front().arrives_ns);
}

// Past all order, if anything passes then.
void TimedFlow::arrive_later(const ConnectionPtr& connection, bool forward, uint64_t after_ns,
                             const Frame& frame) {
  const uint64_t latency_ns = network_.wire(connection->path, rank_of(forward)).latency_ns;
  const uint64_t when_ns = after_ns + network_.random().between(1, 20 * latency_ns);
  network_.at(when_ns, [this, connection, forward, frame] {
    if (passes(*connection, rank_of(forward))) arrive(connection, forward, frame);
  });
}

void TimedFlow::attempt_at(const ConnectionPtr& connection, bool forward, uint64_t when_ns) {
  if (connection->streams[forward].scheduled) return;
  connection->streams[forward].scheduled = true;
  network_.at(when_ns, [this, connection, forward] { attempt(connection, forward); });
}

void TimedFlow::attempt(const ConnectionPtr& connection, bool forward) {
  Stream& stream = connection->streams[forward];
  stream.scheduled = false;
  if (stream.frames.empty()) return;
  const uint64_t now = network_.now_ns();
  if (stream.frames.front().arrives_ns > now)
    return attempt_at(connection, forward, stream.frames.front().arrives_ns);
  const uint32_t from = rank_of(forward);
  const WireSettings& wire = network_.wire(connection->path, from);
  if (!passes(*connection, from) || network_.random().chance(wire.lost)) {
    stream.retry_ns = std::min(std::max(2 * stream.retry_ns, wire.retry_ns), wire.longest_retry_ns);
    return attempt_at(connection, forward, now + stream.retry_ns);
  }
  stream.retry_ns = 0;
  const bool open = forward ? connection->receiver_open || !connection->greeted : connection->sender_open;
  if (!open || network_.is_dead(1 - from)) {
    stream.frames.clear();
    return answer_reset(connection, forward);
  }
  const Frame frame = std::move(stream.frames.front());
  stream.frames.pop_front();
  const bool plain = frame.kind == Frame::Kind::kTransfer || frame.kind == Frame::Kind::kMessage;
  if (!plain || !network_.random().chance(wire.forgotten)) arrive(connection, forward, frame);
  // The copy comes behind: before its data a proposal would be a broken promise of order.
  if (frame.doubled) arrive_later(connection, forward, now, frame);
  if (!stream.frames.empty()) attempt_at(connection, forward, stream.frames.front().arrives_ns);
}

void TimedFlow::arrive(const ConnectionPtr& connection, bool forward, const Frame& frame) {
  switch (frame.kind) {
    case Frame::Kind::kHello:
      return network_.to_rank(rank_of(false), [this, connection] { adopt(connection); });
    case Frame::Kind::kEnd: return forward ? end_at_receiver(connection) : end_at_sender(connection);
    case Frame::Kind::kTransfer: return land(connection, frame);
    case Frame::Kind::kMessage: {
      Event event = path_event(EventKind::kMessage, connection->path, connection->incarnation);
      event.message = frame.message;
      return forward ? to_receiver(event) : to_sender(event);
    }
  }
}

void TimedFlow::land(const ConnectionPtr& connection, const Frame& frame) {
  if (!connection->receiver_open) return;
  const std::string name = "transfer " + std::to_string(frame.sequence);
  if (receiver_.phase == ReceiverPhase::kRun && frame.epoch < receiver_.epoch)
    report(name + " of epoch " + std::to_string(frame.epoch) + " landed after epoch " +
           std::to_string(receiver_.epoch) + " began");
  if (frame.sequence < accepted_ || !landed_.insert(frame.sequence).second) report(name + " landed twice");
  std::copy(frame.bytes.begin(), frame.bytes.end(), program_.destination(frame.sequence));
  Event event = path_event(EventKind::kArrived, connection->path, connection->incarnation);
  event.epoch = frame.epoch;
  event.sequence = frame.sequence;
  to_receiver(event);
}

// A host says of what comes for a connection that it does not have: there is none. Unless that is lost, too.
void TimedFlow::answer_reset(const ConnectionPtr& connection, bool to_the_sender) {
  if (!network_.tells_resets(connection->path)) return;
  const uint32_t from = rank_of(!to_the_sender);
  network_.at(network_.now_ns() + network_.wire(connection->path, from).latency_ns, [=, this] {
    if (!passes(*connection, from)) return;
    to_the_sender ? end_at_sender(connection) : end_at_receiver(connection);
  });
}

// Both ends still have the addresses that it was made between.
bool TimedFlow::passes(const Connection& connection, uint32_t from) const {
  const uint32_t path = connection.path;
  return network_.passes(path, from) && connection.caller == network_.address(path, rank_of(true)) &&
         connection.callee == network_.address(path, rank_of(false));
}

// ---- connections ---------------------------------------------------------------------------------------
// There and back, once both directions are whole and the port is there; else it fails when the time is over.
void TimedFlow::connect(const ConnectionPtr& connection) {
  const uint32_t path = connection->path;
  const uint64_t now = network_.now_ns();
  const uint64_t round_trip = network_.wire(path, 0).latency_ns + network_.wire(path, 1).latency_ns;
  const auto failed = [this, connection] {
    if (!connection->connecting) return;
    connection->connecting = false;
    to_sender(path_event(EventKind::kOpenFailed, connection->path, connection->incarnation));
  };
  if (!network_.has_port(path, rank_of(true))) return network_.at(now + kCloseNs, failed);
  network_.at(now + options_.lengths.connect_ns, failed);
  Callee& callee = callees_[path];
  connection->caller = network_.address(path, rank_of(true));
  connection->callee = callee.calls++ % 2 == 1 ? callee.heard : callee.address;
  const auto try_it = [=, this](auto&& again) -> void {
    if (!connection->connecting) return;
    if (!passes(*connection, 0) || !passes(*connection, 1))
      return network_.at(network_.now_ns() + network_.wire(path, rank_of(true)).retry_ns,
                         [again] { again(again); });
    if (network_.refuses(path) || network_.is_dead(rank_of(false))) return failed();
    connection->connecting = false;
    connection->sender_open = true;
    callees_[path] = {connection->callee, callees_[path].heard, 0};
    transmit(connection, true, {.kind = Frame::Kind::kHello});
    to_sender(path_event(EventKind::kOpened, path, connection->incarnation));
  };
  network_.at(now + round_trip, [try_it] { try_it(try_it); });
}

// As ReceivingFlow::adopt(): the older incarnation is reported closed before the newer one is open.
void TimedFlow::adopt(const ConnectionPtr& connection) {
  connection->greeted = true;
  ConnectionPtr& current = incoming_[connection->path];
  const PathEnd& end = receiver_.paths[connection->path];
  if (connection->incarnation < end.floor || connection->incarnation <= current->incarnation)
    return transmit(connection, false, {.kind = Frame::Kind::kEnd});
  current->receiver_open = false;
  handle_at_receiver(path_event(EventKind::kClosed, connection->path, current->incarnation));
  current = connection;
  connection->receiver_open = true;
  network_.called_from(connection->path, rank_of(false), connection->caller);
  handle_at_receiver(path_event(EventKind::kOpened, connection->path, connection->incarnation));
}

void TimedFlow::end_at_sender(const ConnectionPtr& connection) {
  if (!connection->sender_open) return;
  connection->sender_open = false;
  to_sender(path_event(EventKind::kClosed, connection->path, connection->incarnation));
}

void TimedFlow::end_at_receiver(const ConnectionPtr& connection) {
  if (!connection->receiver_open) return;
  connection->receiver_open = false;
  to_receiver(path_event(EventKind::kClosed, connection->path, connection->incarnation));
}

void TimedFlow::reset(uint32_t path, uint32_t rank) {
  rank == rank_of(true) ? end_at_sender(outgoing_[path]) : end_at_receiver(incoming_[path]);
}

void TimedFlow::called_from(uint32_t path, uint32_t rank, uint32_t address) {
  if (rank == rank_of(true) && options_.calls_back) callees_[path].heard = address;
}

void TimedFlow::port_changed(uint32_t path, uint32_t rank, bool up) {
  const Event event = path_event(up ? EventKind::kPortUp : EventKind::kPortDown, path, 0);
  if (rank == rank_of(true)) return handle_at_sender(event);
  if (!up) handle_at_receiver(event);
}

// ---- what must hold ------------------------------------------------------------------------------------
void TimedFlow::report(const std::string& problem) {
  if (problem_.empty()) problem_ = problem;
}

void TimedFlow::check() {
  const SenderState& s = sender_;
  const ReceiverState& r = receiver_;
  if (s.acked > r.done) report("acked > done");
  if (r.done > s.transmitted) report("done > transmitted");
  if (s.transmitted > s.posted) report("transmitted > posted");
  if (r.done < most_done_) report("done retreats");
  most_done_ = r.done;
  if (s.epoch != r.epoch && s.epoch != r.epoch + 1) report("more than one epoch apart");
  if (s.phase != SenderPhase::kRun) return;
  if (s.epoch != r.epoch) report("the sender runs an epoch of its own");
  if (s.epoch == r.epoch && (s.attempt != r.attempt || s.use != r.use))
    report("the sender runs paths that were not agreed to");
}

}  // namespace starling::link::sim
