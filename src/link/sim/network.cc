#include "link/sim/network.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/assert.h"
#include "link/path.h"
#include "link/receiver.h"
#include "link/sender.h"
#include "link/sim/timers.h"

namespace starling::link::sim {
namespace {

static_assert(std::is_trivially_copyable_v<NetworkState>);

// Every other one is large.
uint64_t bytes_of(uint64_t sequence) { return sequence % 2 == 0 ? 1 : 4; }
constexpr uint64_t kEven = 1;

uint8_t value_of(uint64_t sequence) { return uint8_t(sequence % 250 + 1); }

void push(Queue& queue, const Item& item) {
  if (queue.count < kQueueItems) queue.items[queue.count++] = item;
}
// A message that is already under way word for word is not sent again: resending fills the queues of silent
// paths, and doubles are a fault of their own.
void push_message(Queue& queue, const LinkMessage& message) {
  for (uint32_t k = 0; k < queue.count; ++k)
    if (queue.items[k].epoch == 0 && std::memcmp(&queue.items[k].message, &message, sizeof message) == 0)
      return;
  Item item{};
  item.message = message;
  push(queue, item);
}
void remove(Queue& queue, uint32_t index) {
  for (uint32_t k = index + 1; k < queue.count; ++k) queue.items[k - 1] = queue.items[k];
  queue.items[--queue.count] = {};
}

}  // namespace

class Network::SenderSide : public Link {
 public:
  explicit SenderSide(Network& network) : network_(network), state_(network.state_) {}
  bool post(uint32_t p, uint32_t epoch, uint64_t sequence) override {
    SimPath& path = state_.paths[p];
    if (path.forward.count == kQueueItems || !network_.takes_its_share(p)) return false;
    if (path.sender_open != path.connection || path.sender_closing)
      network_.report("posted on a path that is closed");
    ++path.outstanding;
    Item item{};
    item.sequence = sequence;
    item.epoch = epoch;
    if (path.receiver_open == path.connection) push(path.forward, item);
    return true;
  }
  void send(uint32_t p, const LinkMessage& message) override {
    SimPath& path = state_.paths[p];
    if (path.sender_open != path.connection || path.sender_closing)
      return network_.report("sent on a path that is closed");
    if (path.receiver_open == path.connection) push_message(path.forward, message);
  }
  void close(uint32_t p) override {
    SimPath& path = state_.paths[p];
    path.opening = 0;
    path.sender_connects = 0;
    path.sender_closing = 1;
    path.sender_event = 0;
    path.reverse = {};
  }
  void open(uint32_t p, uint32_t incarnation) override { state_.paths[p].opening = incarnation; }
  void arm(Timer timer, uint32_t path, uint32_t) override {
    state_.sender_timers |= 1u << timer_bit(timer, path);
  }
  void disarm(Timer timer, uint32_t path) override {
    state_.sender_timers &= ~(1u << timer_bit(timer, path));
  }

 private:
  Network& network_;
  NetworkState& state_;
};

class Network::ReceiverSide : public Link {
 public:
  explicit ReceiverSide(Network& network) : network_(network), state_(network.state_) {}
  bool post(uint32_t, uint32_t, uint64_t) override {
    network_.report("the receiver posts");
    return false;
  }
  void send(uint32_t p, const LinkMessage& message) override {
    SimPath& path = state_.paths[p];
    if (path.sender_open != path.connection || path.sender_closing || path.receiver_open != path.connection)
      return;
    push_message(path.reverse, message);
  }
  void close(uint32_t p) override {
    state_.paths[p].receiver_closing = 1;
    state_.paths[p].receiver_event = 0;
  }
  void open(uint32_t, uint32_t) override { network_.report("the receiver opens"); }
  void arm(Timer timer, uint32_t path, uint32_t) override {
    state_.receiver_timers |= 1u << timer_bit(timer, path);
  }
  void disarm(Timer timer, uint32_t path) override {
    state_.receiver_timers &= ~(1u << timer_bit(timer, path));
  }

 private:
  Network& network_;
  NetworkState& state_;
};

Network::Network(const FlowSetup& setup, const FlowCore& core) : setup_(&setup), core_(&core) {
  STARLING_ASSERT(setup.paths <= kSimPaths && setup.slots <= kMostSlots && setup.transfers <= 64,
                  "a small flow");
  state_.sender = new_sender(setup.paths, setup.policy, setup.probation);
  state_.receiver = new_receiver(setup.paths, setup.policy);
  state_.faults = setup.faults;
  for (uint32_t p = 0; p < setup.paths; ++p) {
    SimPath& path = state_.paths[p];
    path.connection = path.sender_open = path.receiver_open = 1;
  }
  to_sender({.kind = EventKind::kOffered});
  Event expecting{.kind = EventKind::kExpecting};
  expecting.sequence = 1;
  to_receiver(expecting);
  use_data();
}

void Network::report(const std::string& problem) {
  if (problem_.empty()) problem_ = problem;
}

void Network::to_sender(const Event& event) {
  if (state_.dead == kSender) return;
  SenderSide side(*this);
  core_->sender(state_.sender, side, event);
}

void Network::to_receiver(const Event& event) {
  if (state_.dead == kReceiver) return;
  ReceiverSide side(*this);
  core_->receiver(state_.receiver, side, event);
}

bool Network::takes_its_share(uint32_t p) const {
  if (!setup_->by_bytes) return true;
  PathSet open = 0;
  for (uint32_t k = 0; k < setup_->paths; ++k) {
    const SimPath& path = state_.paths[k];
    if (path.sender_open == path.connection && !path.sender_closing) open |= bit(k);
  }
  return has_least_under_way(state_.sender, state_.heard, open, p, kEven, bytes_of);
}

// ---- what can happen -----------------------------------------------------------------------------------
bool Network::can_carry_forward(const SimPath& path) const {
  return path.forward.count > 0 && path.receiver_open == path.connection && state_.dead != kReceiver;
}
bool Network::can_carry_reverse(const SimPath& path) const {
  return path.reverse.count > 0 && path.sender_open == path.connection && !path.sender_closing &&
         state_.dead != kSender;
}

void Network::certain_actions(std::vector<Action>& out) const {
  for (uint8_t p = 0; p < setup_->paths; ++p) {
    const SimPath& path = state_.paths[p];
    if (path.sender_closing) out.push_back({ActionKind::kSenderClosed, p, 0});
    if (path.receiver_closing) out.push_back({ActionKind::kReceiverClosed, p, 0});
    if (path.opening && path.down) out.push_back({ActionKind::kOpenFailed, p, 0});
    if (path.opening && !path.down) out.push_back({ActionKind::kConnect, p, 0});
    if (path.sender_connects) out.push_back({ActionKind::kSenderConnected, p, 0});
  }
  for (uint8_t p = 0; p < setup_->paths; ++p) {
    const SimPath& path = state_.paths[p];
    if (can_carry_forward(path) && !(path.broken & kForward))
      out.push_back({ActionKind::kCarryForward, p, 0});
    if (can_carry_reverse(path) && !(path.broken & kReverse))
      out.push_back({ActionKind::kCarryReverse, p, 0});
  }
  if (state_.consumed < state_.receiver.done) out.push_back({ActionKind::kConsume, 0, 0});
}

void Network::possible_actions(std::vector<Action>& out, bool quiescent) const {
  for (uint8_t p = 0; p < setup_->paths; ++p) {
    const SimPath& path = state_.paths[p];
    if (setup_->late) {
      if (can_carry_forward(path) && path.broken & kForward) out.push_back({ActionKind::kLateForward, p, 0});
      if (can_carry_reverse(path) && path.broken & kReverse) out.push_back({ActionKind::kLateReverse, p, 0});
    }
    const bool sending = path.sender_open == path.connection && !path.sender_closing;
    const bool receiving = path.receiver_open == path.connection && !path.receiver_closing;
    if (sending && (path.broken || !receiving)) {
      if (setup_->completions && path.outstanding) out.push_back({ActionKind::kFailCompletion, p, 0});
      if (setup_->resets) out.push_back({ActionKind::kResetSender, p, 0});
    }
    if (receiving && (path.broken || (!sending && !path.sender_connects)))
      out.push_back({ActionKind::kResetReceiver, p, 0});
    if (path.sender_event) out.push_back({ActionKind::kSenderEvent, p, 0});
    if (path.receiver_event) out.push_back({ActionKind::kReceiverEvent, p, 0});
    if (setup_->heals && path.down && state_.dead == kNobody) {
      out.push_back({ActionKind::kHeal, p, 0});
      if (path.broken) out.push_back({ActionKind::kRevive, p, 0});
    }
  }
  for (uint8_t k = 0; k < state_.ghost_count; ++k) out.push_back({ActionKind::kGhost, 0, k});
  if (quiescent) timers(out, ActionKind::kTimer);
}

// Whoever gives up does so after all else had its time: only where an end is dead.
void Network::timers(std::vector<Action>& out, ActionKind kind) const {
  const uint32_t give_up = 1u << timer_bit(Timer::kGiveUp, 0);
  uint32_t masked = state_.dead == kNobody ? give_up : 0;
  for (uint32_t p = 0; p < setup_->paths; ++p)
    if (state_.paths[p].down && state_.sender.paths[p].failures >= kTriesWhileDown)
      masked |= 1u << timer_bit(Timer::kReopen, p);
  for (uint8_t b = 0; b < 32; ++b) {
    if (state_.sender_timers & ~masked & 1u << b) out.push_back({kind, 0, b});
    if (state_.receiver_timers & ~masked & 1u << b) out.push_back({kind, 0, uint8_t(b + kReceiversTimer)});
  }
}

void Network::faults(std::vector<Action>& out, bool quiescent) const {
  if (setup_->dying && state_.dead == kNobody) {
    out.push_back({ActionKind::kDie, 0, kReceiver});
    out.push_back({ActionKind::kDie, 0, kSender});
  }
  if (state_.faults == 0) return;
  for (uint8_t p = 0; p < setup_->paths; ++p) {
    const SimPath& path = state_.paths[p];
    if (setup_->breaks && !path.down)
      for (uint8_t directions = kForward; directions <= (kForward | kReverse); ++directions)
        out.push_back({ActionKind::kBreak, p, directions});
    if (setup_->refusals && state_.refusals + 1 < kMostBlamed) {
      const bool sending = path.sender_open == path.connection && !path.sender_closing;
      const bool receiving = path.receiver_open == path.connection && !path.receiver_closing;
      if (sending && path.outstanding) out.push_back({ActionKind::kRefuse, p, kForward});
      if (receiving) out.push_back({ActionKind::kRefuse, p, kReverse});
    }
    if (!setup_->losses) continue;
    if (can_carry_forward(path)) {
      out.push_back({ActionKind::kLoseForward, p, 0});
      if (path.forward.items[0].epoch == 0) out.push_back({ActionKind::kDoubleForward, p, 0});
    }
    if (can_carry_reverse(path)) {
      out.push_back({ActionKind::kLoseReverse, p, 0});
      out.push_back({ActionKind::kDoubleReverse, p, 0});
      if (path.reverse.count > 1) out.push_back({ActionKind::kOvertake, p, 0});
    }
  }
  if (setup_->early_timers && !quiescent) timers(out, ActionKind::kEarlyTimer);
}

void Network::actions(std::vector<Action>& out) const {
  out.clear();
  certain_actions(out);
  const bool quiescent = out.empty();
  possible_actions(out, quiescent);
  faults(out, quiescent);
}

// ---- what happens --------------------------------------------------------------------------------------
std::string Network::apply(Action action) {
  problem_.clear();
  if (is_fault(action.kind) && action.kind != ActionKind::kDie) --state_.faults;
  perform(action);
  use_data();
  check();
  return problem_;
}

void Network::perform(Action action) {
  const uint32_t p = action.path;
  SimPath& path = state_.paths[p];
  switch (action.kind) {
    case ActionKind::kSenderClosed:
    case ActionKind::kResetSender: {
      path.sender_closing = path.sender_event = 0;
      path.outstanding = 0;
      path.reverse = {};
      const uint32_t incarnation = state_.sender.paths[p].incarnation;
      path.sender_open = 0;
      return to_sender(path_event(EventKind::kClosed, p, incarnation));
    }
    case ActionKind::kReceiverClosed:
    case ActionKind::kResetReceiver: return close_receiver(p);
    case ActionKind::kOpenFailed: {
      const uint32_t incarnation = path.opening;
      path.opening = 0;
      return to_sender(path_event(EventKind::kOpenFailed, p, incarnation));
    }
    case ActionKind::kConnect: return connect(p);
    case ActionKind::kSenderConnected:
      path.sender_connects = 0;
      path.sender_open = path.connection;
      return to_sender(path_event(EventKind::kOpened, p, path.connection));
    case ActionKind::kCarryForward:
    case ActionKind::kLateForward: return carry(p, path.forward, 0, false);
    case ActionKind::kCarryReverse:
    case ActionKind::kLateReverse: return carry(p, path.reverse, 0, false);
    case ActionKind::kDoubleForward: return carry(p, path.forward, 0, true);
    case ActionKind::kDoubleReverse: return carry(p, path.reverse, 0, true);
    case ActionKind::kOvertake: return carry(p, path.reverse, 1, false);
    case ActionKind::kLoseForward: return remove(path.forward, 0);
    case ActionKind::kLoseReverse: return remove(path.reverse, 0);
    case ActionKind::kConsume:
      if (state_.destination[state_.consumed % setup_->slots] != value_of(state_.consumed))
        report("transfer " + std::to_string(state_.consumed) + " was read with wrong bytes");
      ++state_.consumed;
      return;
    case ActionKind::kFailCompletion: {
      --path.outstanding;
      Event event = path_event(EventKind::kCompleted, p, path.sender_open);
      event.status = Completion::kRetryable;
      return to_sender(event);
    }
    case ActionKind::kRefuse: {
      ++state_.refusals;
      const bool at_sender = action.detail == kForward;
      if (at_sender) --path.outstanding;
      Event event = path_event(EventKind::kCompleted, p, at_sender ? path.sender_open : path.receiver_open);
      event.status = Completion::kFatal;
      return at_sender ? to_sender(event) : to_receiver(event);
    }
    case ActionKind::kSenderEvent:
      path.sender_event = 0;
      return to_sender(path_event(EventKind::kPortDown, p, 0));
    case ActionKind::kReceiverEvent:
      path.receiver_event = 0;
      return to_receiver(path_event(EventKind::kPortDown, p, 0));
    case ActionKind::kRevive: path.broken = 0; [[fallthrough]];
    case ActionKind::kHeal: path.down = 0; return;
    case ActionKind::kGhost: {
      const Ghost ghost = state_.ghosts[action.detail];
      state_.ghosts[action.detail] = state_.ghosts[--state_.ghost_count];
      state_.ghosts[state_.ghost_count] = {};
      Item item{};
      item.sequence = ghost.sequence;
      item.epoch = ghost.epoch;
      return land(item, ghost.value);
    }
    case ActionKind::kTimer:
    case ActionKind::kEarlyTimer: return fire(action.detail);
    case ActionKind::kBreak: return break_path(p, action.detail);
    case ActionKind::kDie:
      state_.dead = action.detail;
      for (uint32_t k = 0; k < setup_->paths; ++k) break_path(k, kForward | kReverse);
      (action.detail == kSender ? state_.sender_timers : state_.receiver_timers) = 0;
      return;
  }
}

void Network::carry(uint32_t p, Queue& queue, uint32_t index, bool keep) {
  SimPath& path = state_.paths[p];
  const Item item = queue.items[index];
  if (!keep) remove(queue, index);
  const bool forward = &queue == &path.forward;
  if (item.epoch == 0) {
    Event event = path_event(EventKind::kMessage, p, path.connection);
    event.message = item.message;
    if (!forward && setup_->by_bytes && LinkMessageKind(item.message.kind) == LinkMessageKind::kReport)
      state_.heard.note(item.message);
    return forward ? to_receiver(event) : to_sender(event);
  }
  land(item, state_.source[item.sequence % setup_->slots]);
  Event arrived = path_event(EventKind::kArrived, p, path.connection);
  arrived.epoch = item.epoch;
  arrived.sequence = item.sequence;
  to_receiver(arrived);
  if (path.broken || path.sender_open != path.connection || path.outstanding == 0) return;
  --path.outstanding;
  to_sender(path_event(EventKind::kCompleted, p, path.connection));
}

void Network::land(const Item& item, uint8_t value) {
  const ReceiverState& r = state_.receiver;
  state_.destination[item.sequence % setup_->slots] = value;
  if (!setup_->check_epochs) return;
  if (r.phase == ReceiverPhase::kRun && item.epoch < r.epoch)
    report("a write of epoch " + std::to_string(item.epoch) + " landed after epoch " +
           std::to_string(r.epoch) + " began");
  const uint64_t bit = uint64_t{1} << item.sequence;
  if (state_.landed & bit) report("transfer " + std::to_string(item.sequence) + " landed twice");
  state_.landed |= bit;
}

// Nothing lands after this; unless the receiver does not fence.
void Network::close_receiver(uint32_t p) {
  SimPath& path = state_.paths[p];
  const uint32_t incarnation = path.receiver_open;
  for (uint32_t k = 0; k < path.forward.count && !setup_->fence; ++k) {
    const Item& item = path.forward.items[k];
    if (item.epoch != 0 && state_.ghost_count < kMostGhosts)
      state_.ghosts[state_.ghost_count++] = {
          item.sequence, item.epoch, state_.source[item.sequence % setup_->slots], {}};
  }
  path.forward = {};
  path.receiver_closing = path.receiver_event = 0;
  path.receiver_open = 0;
  if (incarnation != 0) to_receiver(path_event(EventKind::kClosed, p, incarnation));
}

// The receiver hears first that the old connection is closed, then of the new one; the sender last.
void Network::connect(uint32_t p) {
  SimPath& path = state_.paths[p];
  if (path.receiver_open != 0) return close_receiver(p);
  path.connection = path.receiver_open = path.opening;
  path.opening = 0;
  path.broken = path.sender_event = path.receiver_event = 0;
  path.forward = {};
  path.reverse = {};
  path.outstanding = 0;
  path.sender_connects = 1;
  to_receiver(path_event(EventKind::kOpened, p, path.connection));
}

void Network::break_path(uint32_t p, uint8_t directions) {
  SimPath& path = state_.paths[p];
  path.down = 1;
  path.broken |= directions;
  path.sender_event = path.receiver_event = setup_->events;
}

void Network::fire(uint8_t detail) {
  const uint32_t b = detail % kReceiversTimer;
  if (detail < kReceiversTimer) {
    state_.sender_timers &= ~(1u << b);
    to_sender(timer_event(b));
  } else {
    state_.receiver_timers &= ~(1u << b);
    to_receiver(timer_event(b));
  }
}

// The program offers as soon as a source and a slot are free: a source below acked, a slot that was read.
void Network::use_data() {
  if (state_.dead == kSender) return;
  const uint64_t free = std::min(state_.consumed, state_.sender.acked) + setup_->slots;
  const uint64_t end = std::min<uint64_t>(setup_->transfers, free);
  if (end > state_.sender.posted) {
    for (uint64_t k = state_.sender.posted; k < end; ++k) state_.source[k % setup_->slots] = value_of(k);
    Event event{.kind = EventKind::kOffered};
    event.sequence = end;
    to_sender(event);
  }
  if (state_.receiver.done == setup_->transfers && state_.receiver.expecting)
    to_receiver({.kind = EventKind::kExpecting});
}

// ---- what must hold ------------------------------------------------------------------------------------
void Network::check() {
  const SenderState& s = state_.sender;
  const ReceiverState& r = state_.receiver;
  if (s.acked > r.done) report("acked > done");
  if (r.done > s.transmitted) report("done > transmitted");
  if (s.transmitted > s.posted) report("transmitted > posted");
  if (s.posted > setup_->transfers) report("posted > N");
  if (r.done < state_.most_done) report("done retreats");
  state_.most_done = r.done;
  if (s.epoch != r.epoch && s.epoch != r.epoch + 1) report("more than one epoch apart");
  if (s.phase == SenderPhase::kRun && s.epoch != r.epoch) report("the sender runs an epoch of its own");
  if (s.phase == SenderPhase::kRun && s.epoch == r.epoch && (s.attempt != r.attempt || s.use != r.use))
    report("the sender runs paths that were not agreed to");
  if (state_.dead != kNobody) return;
  if (s.phase == SenderPhase::kFailed || r.phase == ReceiverPhase::kFailed) report("gave up");
}

bool Network::is_over() const {
  const SenderState& s = state_.sender;
  const ReceiverState& r = state_.receiver;
  if (state_.dead == kReceiver) return released(s);
  if (state_.dead == kSender)
    return r.phase == ReceiverPhase::kFailed || state_.consumed == setup_->transfers;
  return s.acked == setup_->transfers && state_.consumed == setup_->transfers;
}

}  // namespace starling::link::sim
