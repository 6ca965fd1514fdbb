#include "link/tcp/sending_flow.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/assert.h"
#include "base/error.h"
#include "base/log.h"
#include "link/checks.h"
#include "link/failure_text.h"
#include "link/sender.h"
#include "machine/cpu/futex.h"

namespace starling::link::tcp {
namespace {

constexpr uint32_t kProbation = 1;  // answers until a path that was opened again is trusted

}  // namespace

SendingFlow::SendingFlow(SendingOptions options, Reactor& reactor, TransferSource& source, uint64_t now_ns)
    : options_(std::move(options)),
      reactor_(reactor),
      source_(source),
      recorder_(options_.rings),
      now_ns_(now_ns),
      give_up_ns_(now_ns + options_.lengths.give_up_ns) {
  STARLING_ASSERT(!options_.paths.empty() && options_.paths.size() <= kMaxPaths, "a flow has 1 to 8 paths");
  for (uint32_t p = 0; p < options_.paths.size(); ++p) paths_.push_back(std::make_unique<Path>(*this, p));
  for (auto& path : paths_) connect(*path, 1);
}

SendingFlow::~SendingFlow() {
  for (auto& path : paths_) drop(*path);
}

Event SendingFlow::event_of(EventKind kind, const Path& path) const {
  Event event{.kind = kind};
  event.path = path.number_;
  event.incarnation = path.incarnation;
  return event;
}

// ---- connections --------------------------------------------------------------------------------------
void SendingFlow::connect(Path& path, uint32_t incarnation) {
  auto& [ours, theirs] = options_.paths[path.number_];
  path.incarnation = incarnation;
  path.greeted = false;
  path.connect_end_ns = now_ns_ + options_.lengths.connect_ns;
  path.refusal.clear();
  Port called = theirs;
  path.at_heard = path.calls++ % 2 == 1 && path.heard;
  if (path.at_heard) called.address = *path.heard;
  const auto user_timeout_ms = uint32_t(options_.lengths.give_up_ns / 1'000'000);
  int error;
  Descriptor socket = connect_between(ours, called, user_timeout_ms, error);
  if (!socket && error == EADDRNOTAVAIL && moved(ours)) {
    log(LogLevel::info, "flow to rank ", options_.peer, ": path ", path.number_, " begins at ",
        address_text(ours.address), " now");
    socket = connect_between(ours, called, user_timeout_ms, error);
  }
  try {
    if (socket) {
      auto connection = std::make_unique<Connection>(std::move(socket), options_.bulk);
      if (recorder_.on()) connection->date_arrivals();
      path.watch = reactor_.add(connection->fd(), &path, true);
      path.connection = std::move(connection);
      path.connecting = path.writing = true;
      return;
    }
    path.refusal = std::strerror(error);
    if (is_exhausted(error)) path.refusal += ": allow the process more open files (ulimit -n)";
  } catch (const Error& refused) {
    path.refusal = refused.happened() + ": " + refused.remedy();
  }
  // Tried again at the end of the time, not at once.
  if (started_) events_.push_back(event_of(EventKind::kOpenFailed, path));
}

void SendingFlow::connected(Path& path) {
  if (options_.upgrades != nullptr)
    path.upgrade = options_.upgrades->begin_sending(options_.paths[path.number_].first);
  Hello hello{kHelloMagic,
              options_.from,
              options_.to,
              path.number_,
              uint32_t(paths_.size()),
              path.incarnation,
              uint32_t(options_.policy),
              path.upgrade != nullptr ? path.upgrade->ours() : QueuePairs{}};
  auto& socket = static_cast<Connection&>(*path.connection);
  socket.queue(hello);
  if (path.upgrade == nullptr) return opened(path);
  path.greeted = true;
  // Before the start the peer may not have heard of us yet; then the hello waits there.
  path.connect_end_ns = now_ns_ + (started_ ? options_.lengths.answer_ns : options_.lengths.give_up_ns);
  sent_.clear();
  if (const int error = socket.flush(sent_); error != 0) return broke(path, error);
  reactor_.change(path.watch, socket.fd(), path.writing = socket.waits_to_write());
}

// The receiver has queue pairs, too, or the path stays a socket.
void SendingFlow::answered(Path& path) {
  auto& socket = static_cast<Connection&>(*path.connection);
  sent_.clear();
  if (const int error = socket.flush(sent_); error != 0) return broke(path, error);
  reactor_.change(path.watch, socket.fd(), path.writing = socket.waits_to_write());
  QueuePairs theirs{};
  bool whole = false;
  if (const int error = socket.read_answer(theirs, whole); error != 0) return broke(path, error);
  if (!whole) return;
  const std::unique_ptr<Upgrade> upgrade = std::move(path.upgrade);
  if (theirs.gave_up != 0) return peer_gave_up(path);
  if (theirs.count != 0) {
    reactor_.remove(path.watch, socket.fd());
    std::unique_ptr<Connection> own(static_cast<Connection*>(path.connection.release()));
    path.connection = upgrade->finish(theirs, std::move(own));
    if (path.connection == nullptr) return broke(path, 0);
    path.watch = reactor_.add(path.connection->fd(), &path, path.writing = false);
  }
  if (theirs.count != 0)
    log(LogLevel::info, "flow to rank ", options_.peer, ": path ", path.number_, " goes over RDMA");
  opened(path);
}

// Said with the answer, too: where sockets are refused nothing behind it would be read.
void SendingFlow::peer_gave_up(Path& path) {
  if (!started_) return end_before_start(FlowError::kPeer, FailureCause::kNone);
  path.connecting = false;
  path.connect_end_ns = Timers::kNever;
  events_.push_back(event_of(EventKind::kOpened, path));
  Event last = event_of(EventKind::kMessage, path);
  last.message.kind = uint32_t(LinkMessageKind::kFailed);
  events_.push_back(last);
}

void SendingFlow::only_queue_pairs() {
  only_queue_pairs_ = true;
  for (auto& path : paths_)
    if (path->connection != nullptr && !path->connecting && path->connection->kind() == LinkKind::kTcp)
      refuse_socket(*path);
}

void SendingFlow::refuse_socket(Path& path) {
  broke(path, 0);
  path.trouble =
      "one end has no RDMA there now, and slots of messages lie in a GPU's memory: "
      "STARLING_GPUDIRECT=never lets paths fall back to TCP";
}

std::optional<bool> SendingFlow::has_only_queue_pairs() const {
  if (!started_) return std::nullopt;
  return has_queue_pairs() && std::none_of(paths_.begin(), paths_.end(), [](const auto& path) {
           return path->connection != nullptr && !path->connecting &&
                  path->connection->kind() == LinkKind::kTcp;
         });
}

void SendingFlow::opened(Path& path) {
  if (only_queue_pairs_ && path.connection->kind() == LinkKind::kTcp) return refuse_socket(path);
  path.connecting = false;
  path.trouble.clear();
  path.connect_end_ns = Timers::kNever;
  path.calls = 0;
  if (path.at_heard) std::swap(options_.paths[path.number_].second.address, *path.heard);
  path.at_heard = false;
  recorder_.opened(path.number_, path.connection->kind());
  if (started_) events_.push_back(event_of(EventKind::kOpened, path));
  start_when_connected();
  if (path.connection != nullptr) flush(path);
}

void SendingFlow::drop(Path& path) {
  path.connecting = false;
  path.upgrade.reset();
  if (path.connection == nullptr) return;
  const int error = path.connection->fence(path);
  if (const char* trouble = path.connection->trouble(); *trouble != '\0') path.trouble = trouble;
  if (started_ && classify(error) == Completion::kFatal) {
    Event event = event_of(EventKind::kCompleted, path);
    event.status = Completion::kFatal;
    events_.push_back(event);
  }
  reactor_.remove(path.watch, path.connection->fd());
  path.connection.reset();
  recorder_.closed(path.number_);
  path.writing = false;
  path.connect_end_ns = Timers::kNever;
}

// A socket that is closed reads no source any more: `closed` may be told at once.
void SendingFlow::broke(Path& path, int error) {
  const bool was_connecting = path.connecting;
  drop(path);
  if (!started_) {
    path.connect_end_ns = now_ns_ + options_.lengths.reopen_ns;
    return start_when_connected();
  }
  if (error == Channel::kTransferFailed || classify(error) == Completion::kFatal) {
    Event event = event_of(EventKind::kCompleted, path);
    event.status = classify(error);
    events_.push_back(event);
  }
  events_.push_back(event_of(was_connecting ? EventKind::kOpenFailed : EventKind::kClosed, path));
}

// With all of them, or with those that could be connected in time.
void SendingFlow::start_when_connected() {
  if (started_) return;
  bool any = false;
  for (const auto& path : paths_) {
    if (path->connecting) return;
    any |= path->connection != nullptr;
  }
  if (!any) return;
  started_ = true;
  state_ = new_sender(uint32_t(paths_.size()), options_.policy, kProbation);
  for (const auto& path : paths_) state_.paths[path->number_].incarnation = path->incarnation;
  Event offered{.kind = EventKind::kOffered};
  events_.push_back(offered);
  for (const auto& path : paths_)
    if (path->connection == nullptr) events_.push_back(event_of(EventKind::kOpenFailed, *path));
  offered.sequence = offered_;
  events_.push_back(offered);
}

void SendingFlow::on_ready(Path& path, uint32_t events) {
  if (path.upgrade != nullptr) return answered(path);
  if (path.connecting) {
    if (!(events & (EPOLLOUT | EPOLLERR | EPOLLHUP))) return;
    const int error = connect_error(path.connection->fd());
    if (error != 0) return broke(path, error);
    return connected(path);
  }
  if (events & (EPOLLIN | EPOLLERR | EPOLLHUP))
    if (const int error = path.connection->read(path); error != 0) return broke(path, error);
  flush(path);
  if (refused_) offer(offered_);  // there may be room now
}

// Incarnations that a receiver refuses are below the one that was opened next.
const char* SendingFlow::wrong_with_word(const LinkMessage& message) const {
  if (LinkMessageKind(message.kind) != LinkMessageKind::kReport) return wrong_with(message);
  for (const auto& path : paths_)
    if (message.incarnations[path->number_] > uint64_t(path->incarnation) + 1)
      return "a report of incarnations that were never opened";
  return wrong_with_report(message, sent_below_);
}

void SendingFlow::Path::message(const LinkMessage& message, const Heard& heard) {
  if (const char* wrong = flow_.wrong_with_word(message); wrong != nullptr) return refuse(wrong);
  Event event = flow_.event_of(EventKind::kMessage, *this);
  event.message = message;
  const bool reports = LinkMessageKind(message.kind) == LinkMessageKind::kReport;
  if (reports) flow_.heard_.note(message);
  // Asked of no path over RDMA. A report that came by one may tell of another, over TCP.
  uint64_t at_ns = heard.at_ns;
  if (reports && flow_.recorder_.on())
    flow_.recorder_.landed(message.done, message.landed, [&](uint64_t sequence) {
      if (at_ns == 0) at_ns = cpu::monotonic_ns();
      const uint16_t* age_us = heard.ages != nullptr ? heard.ages->of(sequence, message.done) : nullptr;
      const bool known = age_us != nullptr && *age_us != ArrivalAges::kUnknown;
      return at_ns - uint64_t(known ? *age_us : message.held_us) * 1000;
    });
  flow_.events_.push_back(event);
}

void SendingFlow::flush(Path& path) {
  if (path.connection == nullptr || path.connecting) return;
  sent_.clear();
  const int error = path.connection->flush(sent_);
  // on_ready() has just taken them from the completion queue.
  if (!sent_.empty() && recorder_.completes(path.number_)) {
    const uint64_t now_ns = cpu::monotonic_ns();
    for (const uint64_t sequence : sent_) recorder_.completed(path.number_, sequence, now_ns);
  }
  if (started_)
    for (size_t k = 0; k < sent_.size(); ++k) events_.push_back(event_of(EventKind::kCompleted, path));
  if (error != 0) return broke(path, error);
  const bool writing = path.connection->waits_to_write();
  if (writing != path.writing) reactor_.change(path.watch, path.connection->fd(), writing);
  path.writing = writing;
}

// ---- Link ---------------------------------------------------------------------------------------------
bool SendingFlow::post(uint32_t path, uint32_t epoch, uint64_t sequence) {
  Channel* channel = paths_[path]->connection.get();
  if (channel == nullptr) return false;  // it broke: the flow will be told in a moment
  if (!has_least_under_way(path)) return false;  // the sender tries the others
  channel->free_below(state_.acked);
  const Outgoing transfer = source_.transfer(sequence);
  const PayloadBytes before = channel->payloads();
  refused_ = !channel->queue(epoch, sequence, transfer);
  if (refused_) return false;
  sent_below_ = std::max(sent_below_, sequence + 1);
  const PayloadBytes after = channel->payloads();
  recorder_.went(path, after.straight - before.straight, after.copied - before.copied);
  bytes_[sequence % kFlowWindow] = transfer.control_bytes + transfer.payload_bytes;
  if (recorder_.on())
    recorder_.posted(path, sequence, transfer.control_bytes + transfer.payload_bytes, cpu::monotonic_ns());
  return true;
}

// Paths whose connection broke take nothing; the flow will be told in a moment.
bool SendingFlow::has_least_under_way(uint32_t path) const {
  PathSet open = 0;
  for (const auto& other : paths_)
    if (other->connection != nullptr) open |= bit(other->number_);
  return link::has_least_under_way(state_, heard_, open, path, kEvenBytes,
                                   [&](uint64_t sequence) { return bytes_[sequence % kFlowWindow]; });
}

void SendingFlow::send(uint32_t path, const LinkMessage& message) {
  Channel* channel = paths_[path]->connection.get();
  if (channel != nullptr && !paths_[path]->connecting) channel->queue(message, nullptr);
}

void SendingFlow::close(uint32_t path) {
  flush(*paths_[path]);  // a last word, if there is one
  drop(*paths_[path]);
  events_.push_back(event_of(EventKind::kClosed, *paths_[path]));
}

void SendingFlow::open(uint32_t path, uint32_t incarnation) { connect(*paths_[path], incarnation); }

void SendingFlow::arm(Timer timer, uint32_t path, uint32_t step) {
  timers_.arm(timer, path, now_ns_ + Timers::length(options_.lengths, timer, step));
}

// ---- the owner's --------------------------------------------------------------------------------------
void SendingFlow::offer(uint64_t end) {
  offered_ = end;
  if (!started_) return;
  Event event{.kind = EventKind::kOffered};
  event.sequence = end;
  events_.push_back(event);
}

void SendingFlow::move_source(uint64_t sequence, const std::byte* to) {
  for (const auto& path : paths_)
    if (path->connection != nullptr && !path->connecting && !path->connection->move_source(sequence, to))
      broke(*path, 0);
}

void SendingFlow::port_changed(uint32_t interface_index, bool up) {
  for (const auto& path : paths_) {
    if (options_.paths[path->number_].first.index != interface_index || !started_) continue;
    events_.push_back(event_of(up ? EventKind::kPortUp : EventKind::kPortDown, *path));
  }
}

// A guess, where ports of the two are paired in another way there: so it is tried in turn with what was
// known.
void SendingFlow::peer_called(const Port& ours, const Address& from) {
  for (auto& path : paths_) {
    const auto& [own, theirs] = options_.paths[path->number_];
    if (own.number != ours.number) continue;
    path->heard = from == theirs.address ? std::nullopt : std::optional(from);
  }
}

void SendingFlow::expire(uint64_t now_ns) {
  now_ns_ = now_ns;
  for (auto& path : paths_) {
    if (path->connect_end_ns > now_ns) continue;
    path->connect_end_ns = Timers::kNever;
    if (path->connection != nullptr) broke(*path, ETIMEDOUT);
    const bool none = std::all_of(paths_.begin(), paths_.end(), [](const auto& p) { return !p->connection; });
    // The first one again, unless the peer may have taken it for open.
    if (!started_ && none) connect(*path, path->incarnation + (path->greeted ? 1 : 0));
  }
  if (!started_ && now_ns >= give_up_ns_) end_before_start(FlowError::kNoPath, FailureCause::kOpen);
  for (Event event{}; started_ && timers_.expire(now_ns, event);) {
    suspects_ |= event.timer == Timer::kWatchdog && state_.acked < state_.transmitted;
    events_.push_back(event);
  }
}

void SendingFlow::end_before_start(FlowError error, FailureCause cause) {
  state_ = new_sender(uint32_t(paths_.size()), options_.policy, kProbation);
  state_.phase = SenderPhase::kFailed;
  state_.error = error;
  for (auto& path : paths_) {
    drop(*path);
    path->connect_end_ns = Timers::kNever;
    state_.paths[path->number_].cause = cause;
    state_.paths[path->number_].condition = PathCondition::kClosed;
  }
  started_ = true;
}

uint64_t SendingFlow::next_deadline() const {
  if (failed()) return Timers::kNever;
  uint64_t next = timers_.next();
  for (const auto& path : paths_) next = std::min(next, path->connect_end_ns);
  return started_ ? next : std::min(next, give_up_ns_);
}

void SendingFlow::pump() {
  while (!events_.empty()) {
    while (!events_.empty()) {
      const Event event = events_.front();
      events_.pop_front();
      const uint32_t epoch = state_.epoch;
      Sender(state_, *this).handle(event);
      if (state_.epoch != epoch)
        log(LogLevel::info, "flow to rank ", options_.peer, ": epoch ", state_.epoch, " after path ",
            event.path, ": ", cause_text(state_.paths[event.path].cause));
    }
    for (auto& path : paths_) flush(*path);  // may tell of completions
  }
  if (state_.phase == SenderPhase::kFailed && started_) note_failure();
}

void SendingFlow::note_failure() {
  if (failed()) return;
  FlowNames names{options_.peer, {}};
  for (const auto& path : paths_) {
    names.ports.push_back(path_text(options_.paths[path->number_]));
    names.refusals.push_back(path->refusal.empty() ? path->trouble : path->refusal);
  }
  failure_ = failure_text(state_.error, state_.paths, names);
  log(LogLevel::error, failure_);
}

}  // namespace starling::link::tcp
