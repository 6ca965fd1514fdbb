// The sending end of a flow: one event at a time (flow.h has the states, link.h what events mean).
//
// It alone opens paths and starts epochs; the receiver's word, like its own troubles, only makes it do so. So
// two ends that both notice never contend, and a proposal is older or newer than another by (epoch, attempt).
#pragma once
#include <algorithm>

#include "base/assert.h"
#include "link/flow.h"
#include "link/link.h"
#include "link/path.h"
#include "link/policy.h"

namespace starling::link {

class Sender {
 public:
  Sender(SenderState& state, Link& link) : s_(state), link_(link) {}

  void handle(const Event& event) {
    if (event.kind == EventKind::kOffered) s_.posted = std::max(s_.posted, event.sequence);
    if (s_.phase == SenderPhase::kFailed) return on_event_after_failure(event);
    switch (event.kind) {
      case EventKind::kCompleted: on_completed(event); break;
      case EventKind::kMessage: on_message(event); break;
      case EventKind::kOpened: on_opened(event); break;
      case EventKind::kOpenFailed: on_closed(event, FailureCause::kOpen); break;
      case EventKind::kClosed: on_closed(event, FailureCause::kBroken); break;
      case EventKind::kPortDown: fail(event.path, FailureCause::kPort); break;
      case EventKind::kPortUp: reopen(event.path); break;
      case EventKind::kTimer: on_timer(event); break;
      default: break;
    }
    go_on();
  }

 private:
  PathEnd& path(uint32_t p) { return s_.paths[p]; }
  bool is_current(const Event& event) { return event.incarnation == path(event.path).incarnation; }

  // ---- what a path does --------------------------------------------------------------------------------
  void on_completed(const Event& event) {
    PathEnd& path = this->path(event.path);
    if (!is_current(event) || path.condition == PathCondition::kClosed) return;
    if (path.outstanding > 0) --path.outstanding;
    if (event.status == Completion::kOk || path.condition == PathCondition::kClosing) return;
    if (event.status == Completion::kFatal && is_believed(s_.blamed_at, s_.blamed, s_.acked))
      return give_up(FlowError::kFatal);
    fail(event.path, FailureCause::kCompletion);
  }

  void on_opened(const Event& event) {
    PathEnd& path = this->path(event.path);
    if (!is_current(event) || path.condition != PathCondition::kOpening) return;
    path.condition = PathCondition::kProbing;
    probe(link_, path, event.path);
  }

  void on_closed(const Event& event, FailureCause cause) {
    PathEnd& path = this->path(event.path);
    if (!is_current(event) || path.condition == PathCondition::kClosed) return;
    if (path.condition != PathCondition::kClosing) fail(event.path, cause, true);
    path.condition = PathCondition::kClosed;
    path.outstanding = 0;
    link_.arm(Timer::kReopen, event.path, path.failures);
  }

  void reopen(uint32_t p) {
    if (path(p).condition != PathCondition::kClosed) return;
    link_.disarm(Timer::kReopen, p);
    path(p).incarnation = std::max(path(p).incarnation + 1, path(p).floor);
    path(p).condition = PathCondition::kOpening;
    link_.open(p, path(p).incarnation);
  }

  // The path is not used from now on; an epoch that counted on it ends.
  void fail(uint32_t p, FailureCause cause, bool closed = false) {
    const PathCondition before = path(p).condition;
    if (before == PathCondition::kClosed || before == PathCondition::kClosing) return;
    leave(link_, path(p), p, cause, closed);
    if (s_.phase == SenderPhase::kRun && s_.use & bit(p)) stop_posting();
    if (s_.phase == SenderPhase::kWaitResume && (s_.survivors | s_.next_use) & bit(p)) propose_again();
    s_.survivors &= PathSet(~bit(p));
  }

  // ---- from one epoch to the next ----------------------------------------------------------------------
  void stop_posting() {
    ++s_.epoch;
    s_.attempt = 0;
    s_.survivors = s_.use;
    s_.phase = SenderPhase::kFencing;
    link_.disarm(Timer::kWatchdog, 0);
    s_.watching = 0;
  }

  void propose_again() {
    s_.phase = SenderPhase::kFencing;
    link_.disarm(Timer::kResend, 0);
  }

  // All that failed of the last epoch is closed here: no source is read by a path that is not drained or
  // alive.
  bool fenced() const { return !(s_.use & paths_that_are(s_.paths, PathCondition::kClosing)); }

  void propose() {
    const PathSet living = paths_that_are(s_.paths, PathCondition::kUp);
    if (living == 0) {
      if (!s_.giving_up) link_.arm(Timer::kGiveUp, 0, 0);
      s_.giving_up = 1;
      return;
    }
    if (s_.giving_up) link_.disarm(Timer::kGiveUp, 0);
    s_.giving_up = 0;
    ++s_.attempt;
    s_.next_use = choose_paths(s_.policy, living);
    s_.phase = SenderPhase::kWaitResume;
    send_proposal();
  }

  // On every path that carried data of the last epoch and lives, behind that data; and on those to come.
  void send_proposal() {
    LinkMessage message{};
    message.kind = uint32_t(LinkMessageKind::kProposal);
    message.epoch = s_.epoch;
    message.attempt = s_.attempt;
    message.use = s_.next_use;
    message.survivors = s_.survivors;
    for (uint32_t p = 0; p < kMaxPaths; ++p)
      if (s_.next_use & bit(p)) message.incarnations[p] = path(p).incarnation;
    for (uint32_t p = 0; p < kMaxPaths; ++p)
      if ((s_.survivors | s_.next_use) & bit(p)) link_.send(p, message);
    link_.arm(Timer::kResend, 0, 0);
  }

  void resume(const LinkMessage& report) {
    s_.phase = SenderPhase::kRun;
    s_.use = s_.next_use;
    s_.transmitted = s_.skip_base = report.done;
    s_.skip = report.landed;
    link_.disarm(Timer::kResend, 0);
  }

  // A better choice of paths than this epoch's: one healed, or there is one more.
  bool better_paths() const {
    return choose_paths(s_.policy, paths_that_are(s_.paths, PathCondition::kUp)) != s_.use;
  }

  // ---- what the receiver says --------------------------------------------------------------------------
  void on_message(const Event& event) {
    const uint32_t p = event.path;
    if (!is_current(event) || !is_open(path(p))) return;
    const LinkMessage& message = event.message;
    switch (LinkMessageKind(message.kind)) {
      case LinkMessageKind::kReport: return on_report(p, message);
      case LinkMessageKind::kProbe: return answer(p, message.probe);
      case LinkMessageKind::kFailed: return give_up(FlowError::kPeer);
      default: return;
    }
  }

  void on_report(uint32_t from, const LinkMessage& report) {
    if (report.done > s_.acked) {
      s_.acked = report.done;
      s_.watching = 0;  // progress: the watchdog starts again
    }
    if (hear_answer(link_, path(from), from, report.probe)) on_answer(from, report);
    for (uint32_t p = 0; p < s_.path_count; ++p) {
      path(p).floor = std::max(path(p).floor, report.incarnations[p]);
      if (path(p).incarnation < path(p).floor) fail(p, FailureCause::kPeer);
    }
    if (s_.phase == SenderPhase::kWaitResume && report.epoch == s_.epoch && report.attempt == s_.attempt)
      resume(report);
  }

  void on_answer(uint32_t p, const LinkMessage& report) {
    if (path(p).condition == PathCondition::kProbing) {
      if (++path(p).answered < s_.probation)
        probe(link_, path(p), p);
      else
        path(p).condition = PathCondition::kUp;
      return;
    }
    path(p).failures = 0;
    // Paths keep order: what was posted before the probe is there, or will never be.
    if (s_.phase != SenderPhase::kRun || path(p).probed_epoch != s_.epoch) return;
    for (uint64_t k = std::max(s_.acked, report.done); k < path(p).probed_below; ++k)
      if (s_.path_of[k % kFlowWindow] == p && !(report.landed >> (k - report.done) & 1))
        return fail(p, FailureCause::kLost);
  }

  void answer(uint32_t p, uint32_t number) {
    LinkMessage message{};
    message.kind = uint32_t(LinkMessageKind::kAnswer);
    message.probe = number;
    link_.send(p, message);
  }

  // ---- timers ------------------------------------------------------------------------------------------
  void on_timer(const Event& event) {
    switch (event.timer) {
      case Timer::kWatchdog:
        s_.watching = 0;
        return probe_paths(paths_that_are(s_.paths, PathCondition::kUp));
      case Timer::kResend:
        if (s_.phase != SenderPhase::kWaitResume) return;
        send_proposal();
        return probe_paths(s_.survivors | s_.next_use);
      case Timer::kGiveUp:
        if (s_.giving_up) give_up(FlowError::kNoPath);
        return;
      case Timer::kProbe:
        if (path(event.path).asked) fail(event.path, FailureCause::kSilent);
        return;
      case Timer::kReopen: return reopen(event.path);
    }
  }

  void probe_paths(PathSet paths) {
    for (uint32_t p = 0; p < s_.path_count; ++p) {
      if (!(paths & bit(p)) || path(p).asked) continue;
      // What is posted in the epoch that is being agreed to comes behind the probe.
      path(p).probed_below = s_.phase == SenderPhase::kRun ? s_.transmitted : 0;
      path(p).probed_epoch = s_.epoch;
      probe(link_, path(p), p);
    }
  }

  // ---- whatever can be done now ------------------------------------------------------------------------
  void go_on() {
    if (s_.phase == SenderPhase::kRun && better_paths()) stop_posting();
    if (s_.phase == SenderPhase::kFencing && fenced()) propose();
    if (s_.phase == SenderPhase::kRun) {
      post();
      watch();
    }
  }

  void post() {
    while (s_.transmitted < s_.posted && s_.transmitted - s_.acked < kFlowWindow) {
      const uint64_t k = s_.transmitted;
      const bool landed =
          k >= s_.skip_base && k - s_.skip_base < kFlowWindow && s_.skip >> (k - s_.skip_base) & 1;
      if (!landed && !post(k)) return;
      ++s_.transmitted;
    }
  }

  // On the path with the fewest transfers under way that the link takes it for.
  bool post(uint64_t k) {
    PathSet untried = s_.use;
    while (untried != 0) {
      const uint32_t p = least_loaded(untried);
      if (link_.post(p, s_.epoch, k)) {
        ++path(p).outstanding;
        s_.path_of[k % kFlowWindow] = uint8_t(p);
        return true;
      }
      untried &= PathSet(~bit(p));
    }
    return false;
  }

  uint32_t least_loaded(PathSet paths) const {
    uint32_t best = kMaxPaths;
    for (uint32_t p = 0; p < s_.path_count; ++p)
      if (paths & bit(p) && (best == kMaxPaths || s_.paths[p].outstanding < s_.paths[best].outstanding))
        best = p;
    return best;
  }

  // Also while nothing is under way: a path that is dead, or was closed by a peer that cannot say so, must be
  // found before it is needed.
  void watch() {
    const uint32_t wanted = s_.acked < s_.transmitted ? 1 : 2;
    if (s_.watching == wanted) return;
    s_.watching = wanted;
    link_.arm(Timer::kWatchdog, 0, wanted - 1);
  }

  // ---- the end -----------------------------------------------------------------------------------------
  void give_up(FlowError error) {
    s_.error = error;
    s_.phase = SenderPhase::kFailed;
    LinkMessage message{};
    message.kind = uint32_t(LinkMessageKind::kFailed);
    for (uint32_t p = 0; p < s_.path_count; ++p) {
      if (is_open(path(p))) link_.send(p, message);
      if (path(p).condition != PathCondition::kClosed && path(p).condition != PathCondition::kClosing)
        leave(link_, path(p), p, path(p).cause, false);
      link_.disarm(Timer::kReopen, p);
    }
    for (const Timer timer : {Timer::kWatchdog, Timer::kResend, Timer::kGiveUp}) link_.disarm(timer, 0);
  }

  void on_event_after_failure(const Event& event) {
    if (event.kind != EventKind::kClosed && event.kind != EventKind::kOpenFailed) return;
    if (!is_current(event)) return;
    path(event.path).condition = PathCondition::kClosed;
    path(event.path).outstanding = 0;
  }

  SenderState& s_;
  Link& link_;
};

// Paths 0 to path_count - 1 are open at both ends, in their first incarnation.
inline SenderState new_sender(uint32_t path_count, Policy policy, uint32_t probation) {
  SenderState s{};
  s.policy = policy;
  s.probation = probation;
  s.path_count = path_count;
  s.epoch = 1;
  for (uint32_t p = 0; p < path_count; ++p) {
    s.paths[p].incarnation = s.paths[p].floor = 1;
    s.paths[p].condition = PathCondition::kUp;
  }
  s.use = choose_paths(policy, paths_that_are(s.paths, PathCondition::kUp));
  return s;
}

// Every transfer before `end` is in the receiver's memory: the sources are the owner's.
inline bool all_acked(const SenderState& s, uint64_t end) { return s.acked >= end; }

// No path reads sources any more: after an error, they are the owner's then.
inline bool released(const SenderState& s) {
  for (uint32_t p = 0; p < s.path_count; ++p)
    if (s.paths[p].condition != PathCondition::kClosed) return false;
  return s.phase == SenderPhase::kFailed;
}

}  // namespace starling::link
