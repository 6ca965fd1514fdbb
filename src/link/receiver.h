// The receiving end of a flow: one event at a time (flow.h has the states, link.h what events mean).
//
// It counts what lands, and agrees to an epoch when nothing of the one before can land any more. It never
// retreats: what is counted is in memory, and is never written again.
#pragma once
#include <algorithm>

#include "base/assert.h"
#include "link/flow.h"
#include "link/link.h"
#include "link/path.h"
#include "link/policy.h"

namespace starling::link {

class Receiver {
 public:
  Receiver(ReceiverState& state, Link& link) : r_(state), link_(link) {}

  void handle(const Event& event) {
    if (event.kind == EventKind::kExpecting) r_.expecting = event.sequence != 0;
    if (r_.phase == ReceiverPhase::kFailed) return on_event_after_failure(event);
    switch (event.kind) {
      case EventKind::kArrived: on_arrived(event); break;
      case EventKind::kMessage: on_message(event); break;
      case EventKind::kOpened: on_opened(event); break;
      case EventKind::kClosed: on_closed(event); break;
      case EventKind::kCompleted: on_completed(event); break;
      case EventKind::kPortDown: fail(event.path, FailureCause::kPort); break;
      case EventKind::kTimer: on_timer(event); break;
      default: break;
    }
    if (r_.phase != ReceiverPhase::kFailed) go_on();
  }

 private:
  PathEnd& path(uint32_t p) { return r_.paths[p]; }
  bool is_current(const Event& event) { return event.incarnation == path(event.path).incarnation; }

  // ---- data --------------------------------------------------------------------------------------------
  void on_arrived(const Event& event) {
    const uint32_t p = event.path;
    // Counted until the path is quiet, also when it failed already: it is in memory.
    if (!is_current(event) || event.epoch != r_.epoch || !(r_.use & ~r_.quiet & bit(p))) return;
    if (event.sequence < r_.done) return;
    STARLING_ASSERT(event.sequence - r_.done < kFlowWindow, "a transfer came from beyond the window");
    r_.landed |= uint64_t{1} << (event.sequence - r_.done);
    for (; r_.landed & 1; r_.landed >>= 1) ++r_.done;
    r_.report_due = 1;
    r_.last_path = p;
    r_.watching = 0;  // progress: the watchdog starts again
  }

  // ---- what a path does --------------------------------------------------------------------------------
  void on_opened(const Event& event) {
    PathEnd& path = this->path(event.path);
    if (event.incarnation < path.floor || is_open(path)) return;
    path.incarnation = path.floor = event.incarnation;
    path.condition = PathCondition::kUp;
  }

  void on_closed(const Event& event) {
    PathEnd& path = this->path(event.path);
    if (!is_current(event) || path.condition == PathCondition::kClosed) return;
    if (path.condition != PathCondition::kClosing) fail(event.path, FailureCause::kBroken, true);
    path.condition = PathCondition::kClosed;
    // Promise 3 of link.h: all that landed was reported, and nothing lands any more.
    r_.quiet |= PathSet(r_.use & bit(event.path));
  }

  void on_completed(const Event& event) {
    if (!is_current(event) || !is_open(path(event.path)) || event.status == Completion::kOk) return;
    if (event.status == Completion::kFatal && is_believed(r_.blamed_at, r_.blamed, r_.done))
      return give_up(FlowError::kFatal);
    fail(event.path, FailureCause::kCompletion);
  }

  void fail(uint32_t p, FailureCause cause, bool closed = false) {
    if (!is_open(path(p))) return;
    leave(link_, path(p), p, cause, closed);
    path(p).floor = path(p).incarnation + 1;
    if (r_.phase == ReceiverPhase::kRun && r_.use & bit(p)) fence();
    tell_all(0);
  }

  // ---- from one epoch to the next ----------------------------------------------------------------------
  void fence() {
    r_.phase = ReceiverPhase::kFenced;
    link_.disarm(Timer::kWatchdog, 0);
    r_.watching = 0;
    link_.arm(Timer::kResend, 0, 0);
  }

  void on_proposal(uint32_t from, const LinkMessage& proposal) {
    const bool same = proposal.epoch == r_.epoch, next = proposal.epoch == r_.epoch + 1;
    if (same && proposal.attempt == r_.attempt) return tell_all(0);  // the report was lost
    if (!next && !(same && proposal.attempt > r_.attempt)) return;
    // It came behind all data of the epoch before on this path.
    if (next) r_.quiet |= PathSet(r_.use & bit(from));
    const bool newest = r_.pending_attempt == 0 || proposal.epoch > r_.pending_epoch ||
                        (proposal.epoch == r_.pending_epoch && proposal.attempt > r_.pending_attempt);
    if (newest) {
      r_.pending_epoch = proposal.epoch;
      r_.pending_attempt = proposal.attempt;
      r_.pending_use = proposal.use;
      r_.pending_survivors = proposal.survivors;
      std::copy_n(proposal.incarnations, kMaxPaths, r_.pending_incarnations);
    }
    if (r_.phase == ReceiverPhase::kRun) fence();
    if (next) close_lost_paths();
  }

  // Paths of the epoch that do not survive: the fence.
  void close_lost_paths() {
    for (uint32_t p = 0; p < r_.path_count; ++p)
      if (r_.use & ~r_.quiet & ~r_.pending_survivors & bit(p)) fail(p, FailureCause::kPeer);
  }

  // A later attempt at an epoch that was agreed to: the sender has not heard of that, so nothing of the epoch
  // was posted, and all before it is quiet.
  bool all_quiet() const { return r_.pending_epoch == r_.epoch || !(r_.use & ~r_.quiet); }

  bool all_open() const {
    for (uint32_t p = 0; p < r_.path_count; ++p)
      if (r_.pending_use & bit(p))
        if (!is_open(r_.paths[p]) || r_.paths[p].incarnation != r_.pending_incarnations[p]) return false;
    return true;
  }

  void agree() {
    r_.epoch = r_.pending_epoch;
    r_.attempt = r_.pending_attempt;
    r_.use = r_.pending_use;
    r_.quiet = 0;
    r_.pending_attempt = 0;
    r_.phase = ReceiverPhase::kRun;
    link_.disarm(Timer::kResend, 0);
    tell_all(0);
  }

  // ---- messages ----------------------------------------------------------------------------------------
  void on_message(const Event& event) {
    const uint32_t p = event.path;
    if (!is_current(event) || !is_open(path(p))) return;
    const LinkMessage& message = event.message;
    switch (LinkMessageKind(message.kind)) {
      case LinkMessageKind::kProposal: return on_proposal(p, message);
      case LinkMessageKind::kProbe: return tell(p, message.probe);
      case LinkMessageKind::kAnswer:
        if (hear_answer(link_, path(p), p, message.probe)) path(p).failures = 0;
        return;
      case LinkMessageKind::kFailed: return give_up(FlowError::kPeer);
      default: return;
    }
  }

  void tell(uint32_t p, uint32_t number) {
    LinkMessage message{};
    message.kind = uint32_t(LinkMessageKind::kReport);
    message.epoch = r_.epoch;
    message.attempt = r_.attempt;
    message.probe = number;
    message.done = r_.done;
    message.landed = r_.landed;
    for (uint32_t k = 0; k < kMaxPaths; ++k) message.incarnations[k] = path(k).floor;
    link_.send(p, message);
  }

  void tell_all(uint32_t number) {
    for (uint32_t p = 0; p < r_.path_count; ++p)
      if (is_open(path(p))) tell(p, number);
    r_.report_due = 0;
  }

  // ---- timers ------------------------------------------------------------------------------------------
  void on_timer(const Event& event) {
    switch (event.timer) {
      case Timer::kWatchdog: r_.watching = 0; return probe_paths(r_.use);
      case Timer::kResend:
        if (r_.phase != ReceiverPhase::kFenced) return;
        tell_all(0);
        probe_paths(PathSet(~0));
        link_.arm(Timer::kResend, 0, 0);
        return;
      case Timer::kGiveUp:
        if (r_.giving_up) give_up(FlowError::kNoPath);
        return;
      case Timer::kProbe:
        if (path(event.path).asked) fail(event.path, FailureCause::kSilent);
        return;
      case Timer::kReopen: return;  // the sender opens
    }
  }

  void probe_paths(PathSet paths) {
    for (uint32_t p = 0; p < r_.path_count; ++p)
      if (paths & bit(p) && is_open(path(p))) probe(link_, path(p), p);
  }

  // ---- whatever can be done now ------------------------------------------------------------------------
  void go_on() {
    if (r_.phase == ReceiverPhase::kFenced && r_.pending_attempt != 0 && all_quiet() && all_open()) agree();
    if (r_.report_due) {
      if (is_open(path(r_.last_path)))
        tell(r_.last_path, 0);
      else
        tell_all(0);
      r_.report_due = 0;
    }
    if (r_.phase == ReceiverPhase::kRun) watch();
    watch_paths();
  }

  // While somebody waits for data: a peer that has none to send answers a probe, a dead path does not (ICCL
  // §3.3, case 2).
  void watch() {
    const uint32_t wanted = r_.expecting ? 1 : 0;
    if (r_.watching == wanted) return;
    r_.watching = wanted;
    if (wanted != 0)
      link_.arm(Timer::kWatchdog, 0, 0);
    else
      link_.disarm(Timer::kWatchdog, 0);
  }

  void watch_paths() {
    const bool none = paths_that_are(r_.paths, PathCondition::kUp) == 0;
    if (none == (r_.giving_up != 0)) return;
    r_.giving_up = none;
    if (none)
      link_.arm(Timer::kGiveUp, 0, 0);
    else
      link_.disarm(Timer::kGiveUp, 0);
  }

  // ---- the end -----------------------------------------------------------------------------------------
  void give_up(FlowError error) {
    r_.error = error;
    r_.phase = ReceiverPhase::kFailed;
    LinkMessage message{};
    message.kind = uint32_t(LinkMessageKind::kFailed);
    for (uint32_t p = 0; p < r_.path_count; ++p)
      if (is_open(path(p))) {
        link_.send(p, message);
        leave(link_, path(p), p, path(p).cause, false);
        path(p).floor = path(p).incarnation + 1;
      }
    for (const Timer timer : {Timer::kWatchdog, Timer::kResend, Timer::kGiveUp}) link_.disarm(timer, 0);
  }

  void on_event_after_failure(const Event& event) {
    if (event.kind == EventKind::kOpened) link_.close(event.path);
    if (event.kind == EventKind::kClosed) path(event.path).condition = PathCondition::kClosed;
  }

  ReceiverState& r_;
  Link& link_;
};

inline ReceiverState new_receiver(uint32_t path_count, Policy policy) {
  ReceiverState r{};
  r.path_count = path_count;
  r.epoch = 1;
  PathSet open = 0;
  for (uint32_t p = 0; p < path_count; ++p) {
    r.paths[p].incarnation = r.paths[p].floor = 1;
    r.paths[p].condition = PathCondition::kUp;
    open |= bit(p);
  }
  r.use = choose_paths(policy, open);
  return r;
}

}  // namespace starling::link
