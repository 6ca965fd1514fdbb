#include "link/tcp/receiving_flow.h"

#include <algorithm>

#include "base/assert.h"
#include "base/log.h"
#include "link/checks.h"
#include "link/failure_text.h"
#include "link/path.h"
#include "link/receiver.h"
#include "machine/cpu/futex.h"

namespace starling::link::tcp {
namespace {

constexpr uint64_t kUnreported = 16;  // transfers; a quarter of the window
// Payloads from here on may lie in a caller's buffer: reports of them are sent when they are due, and wake
// the thread for that; others are looked at when the flow is.
constexpr uint32_t kAwaitedBytes = 1 << 16;

}  // namespace

ReceivingFlow::ReceivingFlow(uint32_t path_count, Policy policy, uint32_t peer, const TimerLengths& lengths,
                             Reactor& reactor, TransferSink& sink, uint64_t now_ns, Upgrades* upgrades,
                             bool dated)
    : peer_(peer),
      lengths_(lengths),
      reactor_(reactor),
      sink_(sink),
      upgrades_(upgrades),
      dated_(dated),
      state_(new_receiver(path_count, policy)),
      now_ns_(now_ns),
      arrived_(kFlowWindow) {
  for (uint32_t p = 0; p < path_count; ++p) paths_.push_back(std::make_unique<Path>(*this, p));
  Event expecting{.kind = EventKind::kExpecting};
  expecting.sequence = 1;  // what a lane waits for is not known here: a probe now and then is cheap
  events_.push_back(expecting);
}

ReceivingFlow::~ReceivingFlow() {
  for (auto& path : paths_) drop(*path);
}

Event ReceivingFlow::event_of(EventKind kind, const Path& path) const {
  Event event{.kind = kind};
  event.path = path.number_;
  event.incarnation = path.incarnation;
  return event;
}

// ---- connections --------------------------------------------------------------------------------------
// The older incarnation is reported closed before the newer one is open (link.h, promise 4).
void ReceivingFlow::adopt(const Hello& hello, std::unique_ptr<Connection> connection, Port port) {
  // It listens at the interface: the address may have been changed.
  if (const auto called = own_address(connection->fd())) port.address = *called;
  const std::optional<Address> caller = peer_address(connection->fd());
  pump();  // what is known of the path so far
  Path& path = *paths_[hello.path];
  const PathEnd& end = state_.paths[hello.path];
  const bool first = hello.incarnation == 1 && end.incarnation == 1 && is_open(end) && !path.connection;
  if (!first && (hello.incarnation < end.floor || hello.incarnation <= path.incarnation))
    return;  // closes it
  if (failed()) return;
  if (dated_) connection->date_arrivals();
  std::unique_ptr<Channel> channel = upgrade(hello, std::move(connection), port);
  if (channel == nullptr) return;
  const uint64_t watch = reactor_.add(channel->fd(), &path, false);
  if (!first) {
    drop(path);
    events_.push_back(event_of(EventKind::kClosed, path));
  }
  path.incarnation = hello.incarnation;
  path.port = port;
  if (caller) path.caller = caller;
  path.connection = std::move(channel);
  path.trouble = "";
  path.watch = watch;
  path.writing = false;
  if (!first) events_.push_back(event_of(EventKind::kOpened, path));
}

// Whoever offers queue pairs hears which there are here, or none: then both go on with the socket.
std::unique_ptr<Channel> ReceivingFlow::upgrade(const Hello& hello, std::unique_ptr<Connection> connection,
                                                const Port& port) {
  const uint32_t count = hello.queue_pairs.count;
  if (count == 0) return connection;
  if (count > kMaxQueuePairs) return nullptr;
  std::unique_ptr<Upgrade> upgrade =
      upgrades_ != nullptr ? upgrades_->begin_receiving(port, count, offers_void_) : nullptr;
  const QueuePairs answer = upgrade != nullptr ? upgrade->ours() : QueuePairs{};
  Connection& socket = *connection;
  std::unique_ptr<Channel> channel = std::move(connection);
  if (upgrade != nullptr)
    channel = upgrade->finish(hello.queue_pairs,
                              std::unique_ptr<Connection>(static_cast<Connection*>(channel.release())));
  if (channel == nullptr) return nullptr;
  // Not before they are ready: what comes then finds them.
  socket.queue(answer);
  sent_.clear();
  return socket.flush(sent_) == 0 ? std::move(channel) : nullptr;
}

void ReceivingFlow::drop(Path& path) {
  if (path.connection == nullptr) return;
  path.connection->fence(path);
  path.trouble = path.connection->trouble();
  reactor_.remove(path.watch, path.connection->fd());
  path.connection.reset();
  path.coming.reset();
}

void ReceivingFlow::on_ready(Path& path, uint32_t events) {
  if (events & (EPOLLIN | EPOLLERR | EPOLLHUP)) {
    if (const int error = path.connection->read(path); error != 0) return broke(path, error);
  }
  flush(path);
}

// All that came whole was reported; of the rest nothing is placed any more.
void ReceivingFlow::broke(Path& path, int error) {
  drop(path);
  if (error == Channel::kTransferFailed || classify(error) == Completion::kFatal) {
    Event event = event_of(EventKind::kCompleted, path);
    event.status = classify(error);
    events_.push_back(event);
  }
  events_.push_back(event_of(EventKind::kClosed, path));
}

// A transfer goes straight to its place: the connection is the path's newest incarnation, so it is either of
// the epoch that is accepted, or of the one that was agreed to a moment ago.
bool ReceivingFlow::Path::begin(const FrameHeader& header, std::byte*& control_to, std::byte*& payload) {
  if (header.sequence < flow_.delivered_) return false;
  if (header.sequence - flow_.delivered_ >= kFlowWindow) {
    refuse("a transfer from beyond the window");
    return false;
  }
  coming = header.sequence;
  control.resize(header.control_bytes);
  control_to = control.data();
  payload = nullptr;
  if (header.payload_bytes == 0) return true;
  payload = flow_.sink_.destination(header);
  return payload != nullptr;
}

void ReceivingFlow::Path::end(const FrameHeader& header, uint64_t at_ns) {
  coming.reset();
  Arrived& arrived = flow_.arrived_[header.sequence % kFlowWindow];
  arrived.header = header;
  arrived.at_ns = at_ns;
  arrived.control.swap(control);
  Event event = flow_.event_of(EventKind::kArrived, *this);
  event.epoch = header.epoch;
  event.sequence = header.sequence;
  flow_.events_.push_back(event);
}

void ReceivingFlow::Path::message(const LinkMessage& message, const Heard&) {
  if (const char* wrong = wrong_with(message); wrong != nullptr) return refuse(wrong);
  Event event = flow_.event_of(EventKind::kMessage, *this);
  event.message = message;
  flow_.events_.push_back(event);
}

void ReceivingFlow::flush(Path& path) {
  if (path.connection == nullptr) return;
  if (const int error = path.connection->flush(sent_); error != 0) return broke(path, error);
  const bool writing = path.connection->waits_to_write();
  if (writing != path.writing) reactor_.change(path.watch, path.connection->fd(), writing);
  path.writing = writing;
}

// ---- Link ---------------------------------------------------------------------------------------------
void ReceivingFlow::send(uint32_t path, const LinkMessage& message) {
  // Each path's transfers are reported by that path: another one may be slow.
  if (held_.kind != 0 && held_path_ != path) report_now();
  if (may_wait(message)) {
    if (held_.kind == 0) held_until_ns_ = now_ns_ + lengths_.report_ns;
    held_ = message;
    // Or it is the short end of one.
    for (uint64_t back = 1; back <= std::min<uint64_t>(message.done, 2); ++back)
      awaited_ |= arrived_[(message.done - back) % kFlowWindow].header.payload_bytes >= kAwaitedBytes;
    held_.held_us = uint32_t(cpu::monotonic_ns() / 1000);  // until it is sent: since when
    held_path_ = path;
    return;
  }
  LinkMessage out = message;
  if (LinkMessageKind(message.kind) == LinkMessageKind::kReport) {
    const bool nothing_new = held_.kind != 0 && held_.done == message.done && held_.landed == message.landed;
    out.held_us = nothing_new ? uint32_t(cpu::monotonic_ns() / 1000) - held_.held_us : 0;
    reported_ = message;
    held_.kind = 0;  // this one says all that it said
    awaited_ = false;
    held_until_ns_ = Timers::kNever;
  }
  Channel* channel = paths_[path]->connection.get();
  if (channel == nullptr) return;
  // Over RDMA the sender's own completions say when transfers have landed.
  if (!dated_ || channel->kind() == LinkKind::kVerbs ||
      LinkMessageKind(message.kind) != LinkMessageKind::kReport)
    return channel->queue(out, nullptr);
  const ArrivalAges ages = ages_for(out);
  channel->queue(out, &ages);
}

// Places of transfers that have not come say when others did; the report tells which have.
ArrivalAges ReceivingFlow::ages_for(const LinkMessage& report) const {
  static_assert(ArrivalAges::kCount <= kFlowWindow);
  const uint64_t now = cpu::monotonic_ns();
  const uint64_t half = ArrivalAges::kCount / 2;
  ArrivalAges ages{};
  for (uint64_t s = report.done - std::min(report.done, half); s < report.done + half; ++s) {
    const uint64_t at = arrived_[s % kFlowWindow].at_ns;
    const uint64_t age_us = at == 0 ? ArrivalAges::kUnknown : at > now ? 0 : (now - at) / 1000;
    ages.us[s % ArrivalAges::kCount] = uint16_t(std::min<uint64_t>(age_us, ArrivalAges::kUnknown));
  }
  return ages;
}

// A report that says nothing but that transfers have come: the sender has a window of them, and staging is
// freed by grants. To its sender it is a report that came late.
bool ReceivingFlow::may_wait(const LinkMessage& message) const {
  return LinkMessageKind(message.kind) == LinkMessageKind::kReport && message.probe == 0 &&
         state_.phase == ReceiverPhase::kRun && message.epoch == reported_.epoch &&
         message.attempt == reported_.attempt && message.done != reported_.done &&
         message.done - reported_.done < kUnreported &&
         std::equal(std::begin(message.incarnations), std::end(message.incarnations),
                    std::begin(reported_.incarnations));
}

void ReceivingFlow::report_now() {
  if (held_.kind == 0) return;
  const LinkMessage message = held_;
  reported_.epoch = 0;  // no epoch's: it may not wait
  send(held_path_, message);
  flush(*paths_[held_path_]);
}

void ReceivingFlow::close(uint32_t path) {
  flush(*paths_[path]);  // a last word, if there is one
  // The fence: this thread reads the socket, so nothing lands after it is closed.
  drop(*paths_[path]);
  events_.push_back(event_of(EventKind::kClosed, *paths_[path]));
}

void ReceivingFlow::arm(Timer timer, uint32_t path, uint32_t step) {
  const bool watchdog = timer == Timer::kWatchdog;
  timers_.arm(timer, path, now_ns_ + Timers::length(lengths_, timer, watchdog ? 1 : step));
}

// ---- the owner's --------------------------------------------------------------------------------------
void ReceivingFlow::move_destination(const std::byte* from, uint64_t bytes, std::byte* to) {
  for (const auto& path : paths_)
    if (path->connection != nullptr) path->connection->move_destination(from, bytes, to);
}

void ReceivingFlow::fence_writes(uint64_t offers_void) {
  offers_void_ = offers_void;
  for (const auto& path : paths_)
    if (path->connection != nullptr && path->connection->kind() == LinkKind::kVerbs) broke(*path, 0);
}

void ReceivingFlow::port_changed(uint32_t interface_index, bool up) {
  if (up) return;
  for (const auto& path : paths_)
    if (path->connection != nullptr && path->port.index == interface_index)
      events_.push_back(event_of(EventKind::kPortDown, *path));
}

void ReceivingFlow::expire(uint64_t now_ns) {
  now_ns_ = now_ns;
  if (now_ns >= held_until_ns_) report_now();
  for (Event event{}; timers_.expire(now_ns, event);) events_.push_back(event);
}

void ReceivingFlow::pump() {
  while (!events_.empty()) {
    while (!events_.empty()) {
      const Event event = events_.front();
      events_.pop_front();
      Receiver(state_, *this).handle(event);
    }
    deliver();
    for (auto& path : paths_) flush(*path);
  }
  if (state_.phase == ReceiverPhase::kFailed) note_failure();
}

void ReceivingFlow::deliver() {
  for (; delivered_ < state_.done; ++delivered_) {
    Arrived& arrived = arrived_[delivered_ % kFlowWindow];
    STARLING_ASSERT(arrived.header.sequence == delivered_, "a transfer that is counted has come");
    // By another path it could still be written into what is about to be read, and given back.
    for (const auto& path : paths_)
      if (path->coming == delivered_) {
        sink_.refuse("a transfer that came twice");
        broke(*path, 0);
      }
    sink_.accept(arrived.header, arrived.control.data());
  }
}

void ReceivingFlow::note_failure() {
  if (failed()) return;
  FlowNames names{peer_, {}};
  for (const auto& path : paths_) {
    names.refusals.push_back(path->trouble);
    std::string& name = names.ports.emplace_back("path " + std::to_string(path->number_));
    if (path->port.name.empty()) continue;
    name = path->port.name + " " + address_text(path->port.address);
    if (path->caller) name += " <- " + address_text(*path->caller);
  }
  failure_ = failure_text(state_.error, state_.paths, names);
  log(LogLevel::error, failure_);
}

}  // namespace starling::link::tcp
