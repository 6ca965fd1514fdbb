// The host's side of operations on streams: what is put into a stream, when the daemon is launched, when it
// has to stay, and how waiters are released. Host code of a Machine, so that the simulator runs what users
// run. The picture and the reasons: docs/design/0007-start-as-a-kernel.md.
// long: what is decided under one lock, of what all of it counts.
//
// An operation, as the owner of lanes and requests submits it:
//
//   lock  may_enter? ── no: unlock, wait a moment, again
//         the operation into the lane's ring, if it has a place and nothing of the lane waits for one
//         enter ── kQueue or kMark: its submission into the SQ now; without a place later, when the lane has
//         one; kRendezvous: when its arrival says that the stream has come, and all peers' hosts that theirs
//         have
//   unlock
//   enqueue, before the caller puts anything else into the stream
//
// Operations of different lanes may begin together in one stream: none of them stands behind another. All
// may_enter, all enter, under one hold of the lock; then they are enqueued at once.
//
// and under the lock: poll() now and then and after every push, completed() for every completion that is
// read: from the completion queue, or, of an operation on kKernel, whose token is 0, by was_told()
// (device/handover.h). Nothing under the lock stands in the driver.
#pragma once
#include <algorithm>

#include "device/alone.h"
#include "device/call_host.h"
#include "device/residency.h"
#include "device/stream_call.h"
#include "device/submission_queue.h"
#include "device/watched.h"

namespace starling::device {

inline constexpr uint64_t kRestShare = 64;  // of quit_ns: how long a daemon stays that has nothing to do
inline constexpr uint64_t kCallsPeriodNs = 1000;  // who waits for calls looks again no sooner

template <class M, StreamDevice D>
class StreamHost {
 public:
  // All live as long as it. `daemon`: as every residency gets it; number and stay are filled in here.
  StreamHost(M& machine, D& device, const StreamFacts& facts, const StreamPolicy& policy,
             const DaemonArguments& daemon, const HostEnds& ends)
      : m_(machine),
        d_(device),
        facts_(facts),
        policy_(policy),
        ends_(ends),
        daemon_(daemon),
        residency_(machine, device, daemon, ends.drain),
        watched_(facts.watch_limit),
        calls_(machine, device, facts_),
        alone_(machine, facts.alone) {}

  // ---- under the host's lock ---------------------------------------------------------------------------

  // May an operation be put into the stream now? False: let go of the lock, and ask again.
  bool may_enter(const StreamCall& call) {
    if (d_.queued(call.stream) + entries_each() * (1 + call.before) > facts_.launch_limit) return false;
    observe();  // a daemon that has left meanwhile keeps nobody from being alone
    const bool alone = enters_alone(call);
    // Who enters with one that is alone, and is not, ends that: the stream stands for it all the same.
    const bool beside_alone =
        policy_.watches && call.first != nullptr && call.first->held && enters_alone(*call.first);
    const bool stands = beside_alone || (call.held && !may_watch(call.stream)) ||
                        (facts_.daemon_first && (holds_ > 0 || stands_ > 0));
    return !stands || alone || may_hold();
  }

  // As may_hold(), for a stream and an operation that copy engines move. It needs no daemon, but what is
  // under way beside it may: that could not be launched while a call of the program waits in the driver for
  // this stream.
  bool may_stand() { return under_way_ == 0 || alone_.are_held() || may_hold(); }

  // May the stream stand for an operation that has entered? `by_itself`: it may do without the host.
  bool may_hold(const StreamEntry& entry, Stream stream, bool by_itself) {
    if (by_itself && grant(entry)) return true;
    // Who is alone, and stood for, stays no longer.
    return (may_watch(stream) && holds_ == 0 && stands_ == 0) || may_hold();
  }

  // A stream that stands may stop a launch (StreamFacts): a daemon that stays has to be there before.
  bool may_hold() {
    if (!guards()) return true;
    observe();
    if (residency_.resident() && !residency_.draining() && !residency_.stays()) residency_.drain();
    if (!residency_.resident()) launch(true);
    return !residency_.draining() && !residency_.coming();
  }

  // Under the same lock as its enter(): it has failed, and is not enqueued.
  void abandon(const StreamEntry& entry) { calls_.abandon(entry); }

  // After may_enter() under the same lock.
  StreamEntry enter(const StreamCall& call) {
    if (call.copies) {
      stands_ += call.held;
      return {StreamPath::kCopies, 0, 0, 0, 0, call.held, 0};
    }
    StreamEntry entry{choose(call), 0, 0, call.follows, 0, 0, 0};
    // Those that begin together do so beside one another: if one is not alone, none behind it is.
    entry.alone = enters_alone(call) && (!call.joins || alone_.any());
    if (!entry.alone)
      alone_.end();
    else if (under_way_ == 0 || !alone_.any())
      alone_.begin(call.stream, call.held, call.lane);
    entry.patience = alone_.patience();
    entry.in_row = row_.enter(call.stream, call.held && entry.path == StreamPath::kKernel);
    ++under_way_;
    const bool watched = call.held && !entry.alone && watch(entry, call.stream) != 0;
    entry.gate = call.held && !watched && policy_.gates && entry.path == StreamPath::kKernel &&
                 gates_ < facts_.gate_limit;
    entry.waits = call.held && !entry.gate;
    if (call.held && !watched) count_hold(entry);
    gates_ += entry.gate;
    starts_ += entry.path == StreamPath::kKernel;
    rendezvous_ += entry.path == StreamPath::kRendezvous;
    unmet_ += entry.path == StreamPath::kRendezvous;
    if (entry.path == StreamPath::kKernel) calls_.enter(call, entry);
    last_activity_ = std::max(last_activity_, call.called_ns != 0 ? call.called_ns : d_.now());
    return entry;
  }

  // An operation on kRendezvous was submitted.
  void met(StreamEntry& entry) {
    entry.met = 1;
    --unmet_;
    last_activity_ = d_.now();
  }

  // One more stream is going to stand for the operation; after may_hold() of the same, or may_stand(), under
  // the same lock. Then wait_for(), by a watch of so many blocks, if any.
  uint32_t hold(StreamEntry& entry, Stream stream, bool by_itself) {
    if (entry.path == StreamPath::kCopies) {
      ++entry.holds;
      ++stands_;
      return 0;
    }
    if (!by_itself || !grant(entry)) {
      alone_.end();
      if (const uint32_t blocks = watch(entry, stream); blocks != 0) return blocks;
    }
    count_hold(entry);
    return 0;
  }

  // The operation's completion was read.
  void completed(const StreamEntry& entry) {
    if (keeps_daemon()) needed_at_ = d_.now();
    if (entry.path == StreamPath::kCopies) {
      stands_ -= entry.holds;
      last_activity_ = d_.now();
      return;
    }
    holds_ -= entry.holds;
    watched_.completed(entry);
    calls_.completed(entry);
    gates_ -= entry.gate;
    starts_ -= entry.path == StreamPath::kKernel;
    rendezvous_ -= entry.path == StreamPath::kRendezvous;
    unmet_ -= entry.path == StreamPath::kRendezvous && !entry.met;  // it never came to the device
    if (entry.in_row != 0) row_.completed();
    if (--under_way_ == 0)
      alone_.forget();
    else if (holds_ == 0)
      alone_.revoke();
    last_activity_ = d_.now();
  }

  // Launches the daemon if something waits for it, and lets it go if it stays for nothing.
  void poll() {
    serve();
    if (may_rest() && d_.now() >= rests_at()) drain();
  }

  // The first half of poll(): never ends a residency.
  void serve() {
    observe();
    calls_.look();
    if (!residency_.resident() && (needs_daemon() || has_work()))
      launch(facts_.shared_queue || (facts_.daemon_first && keeps_daemon()));
    call_helpers();
    // Also one that came for old news has places that the rest of the operation's blocks may wait for.
    if (residency_.resident() && !residency_.coming()) alone_.end();
  }

  // Asks the residency under way to end at the blocks' next yields. Where a launch may stand behind a stream,
  // one that stands keeps it.
  void drain() {
    if (!residency_.resident() || (guards() && keeps_daemon())) return;
    residency_.drain();
  }

  // Releases every stream that stands for an operation of the lane up to `newest`. When the lane breaks, and
  // again after each completion of the broken lane that is read: the block that completed an operation may
  // have overwritten the poison meanwhile, and others may stand for a later one at the same place.
  void poison(const Handover& handover, uint64_t newest) {
    for (uint32_t at = 0; at < handover.depth; ++at)
      d_.release(&handover.done[at].done, newest + 1 + kPoison);
    // Then: a watch that comes finds its stream released.
    for (uint32_t at = 0; policy_.watches && at < handover.depth; ++at)
      device::wake_watches(m_, handover, newest - at);
  }

  // No daemon is there, and none is needed.
  bool settled() {
    observe();
    // Relaxed: it matters only once nothing is under way that would write it.
    return !residency_.resident() && !d_.helpers_resident() && submissions_read() &&
           m_.load_relaxed(ends_.work) == 0;
  }

  // Operations under way that their owner submits later.
  bool any_rendezvous() const { return rendezvous_ > 0; }

  bool submissions_read() { return all_submissions_read(m_, *ends_.submissions, ends_.block_count); }

  // ---- captured operations (docs/design/0019-cuda-graphs.md) --------------------------------------------

  // All streams share a hardware queue: one that stands stops launches into the others.
  bool shares_queue() const { return facts_.shared_queue; }

  // Where a stream that stands stops launches, nobody could launch a daemon before a replay.
  bool may_capture() const { return !facts_.shared_queue && !policy_.doorbells; }

  // For a lane of captured operations: one block may stay as a gate, until give_gate(). False: its streams
  // are held by gate kernels.
  bool take_gate() {
    if (!policy_.gates || gates_ + captured_gates_ >= facts_.gate_limit) return false;
    ++captured_gates_;
    return true;
  }
  void give_gate() { --captured_gates_; }

  // Before each poll(): is an operation of a replay under way? It asked nobody: start kernels that stay until
  // others come learn of it.
  void note_replays(bool under_way) {
    replays_ = under_way;
    if (under_way) last_activity_ = d_.now();
  }

  // Likewise: does the daemon have operations that no stream orders?
  void note_called(bool under_way) { called_ = under_way; }

  // Something was left to a daemon that is not there, or to its helpers: note_calls() is wanted before
  // poll().
  bool asks_for_calls() {
    return facts_.missing_ns != 0 && (!residency_.resident() || residency_.guards()) &&
           (news_ || m_.load_relaxed(ends_.work) != 0);
  }
  // Each lane's oldest operation under way waits for a rank that has not called it yet, as far as is known.
  // Then blocks would only keep multiprocessors: none is launched for what was left to them until that
  // changes, but for one residency every missing_ns, which is for what nobody has thought of.
  void note_calls(bool missing) {
    if (missing && !calls_missing_) missing_since_ = d_.now();
    calls_missing_ = missing;
  }

  // A daemon that is needed does not come: watches have turns.
  bool wakes_watches() {
    return residency_.missing() && watched_.any() && d_.now() - launched_at_ >= facts_.wake_ns;
  }
  // While that says so, and until none is woken any more.
  const Watched* turn_watches(const WatchLook& look, bool needed) {
    return turns_.take(m_, look, needed, {d_.now(), facts_.turn_ns, facts_.served_ns, last_activity_});
  }

  // When poll() may have something to do; ~0: only after an event.
  uint64_t next_poll() {
    return std::min(calls_.any_busy() ? d_.now() + facts_.restart_ns : ~uint64_t(0), next_serve());
  }

  bool resident() const { return residency_.resident(); }
  uint64_t launches() const { return residency_.launches(); }
  // Nothing is under way that it would have to know of.
  bool quiet() const { return holds_ == 0 && !watched_.any() && stands_ == 0 && gates_ == 0 && starts_ == 0; }

  // ---- without the lock --------------------------------------------------------------------------------

  // Puts operations that have entered together into their stream; may stand in the driver. start->gate and
  // what else is the entry's is filled in here. At most kMostTogether.
  void enqueue(Stream stream, Entering* each, uint32_t count) {
    put_in_order(each, count);
    const StartArguments* starts[kMostTogether] = {};
    uint32_t kernels = 0;
    for (uint32_t k = 0; k < count; ++k) {
      const StreamEntry& entry = each[k].entry;
      StartArguments& start = *each[k].start;
      start.gate = entry.gate;
      start.follows = entry.follows;
      start.alone = entry.alone ? facts_.alone : nullptr;
      start.patience = entry.patience;
      if (entry.call != CallWay::kStart)
        calls_.put(entry, start);
      else if (entry.path == StreamPath::kKernel)
        starts[kernels++] = &start;
      else if (entry.path == StreamPath::kMark)
        d_.write_value(stream, each[k].handover->ready, start.operation.sequence + 1);
      else if (entry.path == StreamPath::kRendezvous)
        d_.write_value(stream, each[k].arrival, start.operation.sequence + 1);
    }
    if (kernels > 0) d_.launch_start(stream, starts, kernels);
    // Behind all of them: an operation that is waited for stands before none that begins with it.
    for (uint32_t k = 0; k < count; ++k)
      if (each[k].entry.waits)
        wait_for(stream, *each[k].handover, each[k].start->operation.sequence, blocks_of(each[k].entry));
  }

  // Kernels that stay for the CPU's calls leave. Under the lock; no operation is under way, or ever will be.
  void end_calls() { calls_.end(); }

  // The stream stands until operation `sequence` is complete; or until its watch, of so many blocks if any,
  // is woken, and then by that.
  void wait_for(Stream stream, const Handover& handover, uint64_t sequence, uint32_t watch_blocks) {
    const Done& done = handover.done[sequence % handover.depth];
    if (watch_blocks == 0) return d_.wait_value(stream, &done.done, sequence + 1);
    // Its watch may have to wait for a place. Others would take places that start kernels need.
    d_.wait_and_write(stream, &done.told, &handover.came[sequence % handover.depth], sequence + 1);
    DaemonArguments watch = daemon_;
    watch.launch = ~uint64_t(0);  // its first block leaves with its stream, or when all are to leave
    watch.stays = watch.guards = 1;
    watch.awaited = &done.done;
    watch.until = sequence + 1;
    d_.launch_watch(stream, watch, watch_blocks);
    note_watch_put(m_, handover, sequence);
  }

  // Captures operations that begin together: start->operation has the numbers of the first replay, and
  // start->captured is there. Of the entry `gate` alone counts: a block stays until the operation is
  // complete. At most kMostTogether.
  void capture(Stream stream, Entering* each, uint32_t count) {
    put_in_order(each, count);
    const StartArguments* starts[kMostTogether] = {};
    for (uint32_t k = 0; k < count; ++k) {
      StartArguments& start = *each[k].start;
      start.gate = each[k].entry.gate;
      start.follows = 1;  // the lane's captured operations run one after the other
      start.alone = nullptr;
      starts[k] = &start;
    }
    d_.launch_start(stream, starts, count);
  }

  // The stream stands until the replay's operation is complete, whose start kernel is before it.
  void capture_wait(Stream stream, const Handover& handover, const uint64_t* captured) {
    d_.launch_gate(stream, {captured, handover.done});
  }

 private:
  // next_poll(), but for calls.
  uint64_t next_serve() {
    const bool work = news_ || m_.load_relaxed(ends_.work) != 0;
    if (calls_missing_ && work && (!residency_.resident() || residency_.guards()))
      return d_.now() + std::max(facts_.restart_ns, kCallsPeriodNs);
    if (!residency_.resident()) return work ? restart_at_ : ~uint64_t(0);
    if (residency_.coming() || (watched_.any() && residency_.missing())) return d_.now() + facts_.restart_ns;
    if (alone_.any()) return d_.now();  // it is there: serve() has to end that
    return may_rest() ? rests_at() : ~uint64_t(0);
  }

  bool guards() const { return facts_.shared_queue || facts_.daemon_first; }

  // That an operation puts into its stream, at most: a mark or a kernel, a wait, and a watch.
  uint32_t entries_each() const { return policy_.watches ? 3 : 2; }

  // A stream stands, and what blocks run is under way.
  bool keeps_daemon() const { return holds_ > 0 || (stands_ > 0 && under_way_ > 0); }

  // The daemon that is there is not needed, as far as its host knows.
  bool may_rest() const {
    if (!residency_.resident() || residency_.coming() || residency_.draining() || keeps_daemon())
      return false;
    return residency_.stays() || (policy_.watches && has_nothing());
  }
  // Nothing that was submitted is left, as far as the host knows.
  bool has_nothing() const { return under_way_ == unmet_ && !called_ && !replays_; }
  // When it may go. In a row of operations that hold one stream something completes all the time, and who
  // comes is alone again once it has gone: there it counts since when it was needed.
  uint64_t rests_at() const {
    const bool in_row = policy_.watches && row_.is_all(under_way_) && !called_ && !replays_;
    return in_row ? needed_at_ + facts_.quit_ns : last_activity_ + rest_ns();
  }
  // How long it stays so. A program that synchronizes its device waits for it, so it is short once nothing is
  // under way.
  uint64_t rest_ns() const {
    if (policy_.watches && has_nothing()) return facts_.quit_ns / kRestShare;
    return under_way_ == 0 ? facts_.quit_ns / 16 : facts_.quit_ns;
  }

  // ---- StreamPolicy::watches ---------------------------------------------------------------------------

  bool may_watch(Stream stream) const {
    return policy_.watches && facts_.daemon_first && !facts_.shared_queue &&
           reinterpret_cast<uintptr_t>(stream) != facts_.ambiguous && watched_.has_place(stream);
  }
  // A watch of so many blocks is to be put into the stream for the operation, if any.
  uint32_t watch(StreamEntry& entry, Stream stream) {
    return may_watch(stream) ? blocks_at(watched_.add(entry, stream)) : 0;
  }
  uint32_t blocks_at(uint32_t place) const { return place < facts_.wide_watches ? facts_.watch_blocks : 1; }
  // Of one that is new.
  uint32_t blocks_of(const StreamEntry& entry) const {
    return entry.watches == 0 ? 0 : blocks_at(uint32_t(std::countr_zero(entry.watches)));
  }

  // All that is under way is of this stream: its operations run one after the other, so the one that has
  // begun may keep its place and wait, and no daemon is needed. Nor is anything else of the host: who
  // introduces peers may have to launch a daemon first, which may stand in the driver behind a call that
  // waits for the stream. Who holds nothing may be stuck and leave, which takes a daemon: not beside streams
  // that stand for copies.
  bool enters_alone(const StreamCall& call) const {
    if (!may_be_alone() || !call.connected || !by_kernel(call)) return false;
    if (!call.held && (call.lane == nullptr || stands_ > 0)) return false;
    if (under_way_ == 0 || alone_.takes(call.stream, call.held, call.lane)) return true;
    return !alone_.any() && row_.takes(call.stream, call.held, under_way_);
  }

  bool may_be_alone() const {
    return facts_.daemon_first && !facts_.shared_queue && !residency_.resident() && !replays_;
  }

  bool grant(const StreamEntry& entry) {
    return entry.alone && may_be_alone() && alone_.grant(entry.patience);
  }

  void count_hold(StreamEntry& entry) {
    ++entry.holds;
    ++holds_;
  }

  StreamPath choose(const StreamCall& call) {
    // A launch or a mark would stand behind a stream that is held; the daemon, which is there, can run it
    // now.
    if (facts_.shared_queue && holds_ > 0 && d_.idle(call.stream)) return StreamPath::kQueue;
    if (by_rendezvous(call)) return StreamPath::kRendezvous;
    return by_kernel(call) ? StreamPath::kKernel : StreamPath::kMark;
  }

  bool by_kernel(const StreamCall& call) const {
    return call.room && !policy_.doorbells && !by_rendezvous(call) &&
           starts_ + call.before < facts_.start_limit;
  }

  // On a shared queue its daemon would have to be there before others' streams stand. Without a place its
  // arrival might come where one of an earlier operation is looked for.
  bool by_rendezvous(const StreamCall& call) const {
    return policy_.rendezvous && call.rendezvous && call.room && !facts_.shared_queue;
  }

  void observe() {
    if (residency_.look_for_new()) last_activity_ = d_.now();
    if (residency_.look_for_end()) restart_at_ = d_.now() + facts_.restart_ns;
  }

  bool needs_daemon() const { return guards() && keeps_daemon() && (!alone_.stay() || replays_); }

  bool has_work() {
    if (!submissions_read()) return true;
    const uint64_t now = d_.now();
    return now >= restart_at_ && !in_vain(now) && (news_ = take_work());
  }

  // What was left to a daemon is stuck, by note_calls(), and the last residency for it was not long ago.
  bool in_vain(uint64_t now) const {
    if (under_way_ > starts_ + unmet_) return false;  // of what it was given otherwise nobody has asked
    return calls_missing_ && now - std::max(missing_since_, restart_at_) < facts_.missing_ns;
  }

  // A guard has work, and is alone. While helpers are there, what is new is theirs or the guard's. Where they
  // cannot be launched, behind a call of the program that stands in the driver, the guard does all.
  void call_helpers() {
    if (!residency_.guards() || residency_.coming() || residency_.draining()) return;
    news_ |= take_work();
    if (d_.helpers_resident()) {
      news_ = false;
      return;
    }
    if (!(news_ && !calls_missing_) && submissions_read()) return;
    news_ = false;
    residency_.launch_helpers();
  }

  // Acquire: pairs with the releases in push_parked() and Daemon::quit(). Taken back before the launch, so
  // that who writes it later is heard again; what was written before is visible to the daemon that is
  // launched now.
  bool take_work() { return m_.load_relaxed(ends_.work) != 0 && m_.compare_exchange(ends_.work, 1, 0) == 1; }

  void launch(bool stays) {
    // On a shared queue helpers could stand before everybody's launches.
    const bool guards = policy_.guards && stays && !facts_.shared_queue && ends_.block_count > 1;
    residency_.launch(stays, guards);
    if (!guards) news_ = false;  // all are there
    launched_at_ = last_activity_ = needed_at_ = d_.now();
  }

  M& m_;
  D& d_;
  StreamFacts facts_;
  StreamPolicy policy_;
  HostEnds ends_;
  const DaemonArguments daemon_;
  Residency<M, D> residency_;
  uint64_t restart_at_ = 0;
  uint64_t last_activity_ = 0;
  uint64_t launched_at_ = 0;
  uint64_t needed_at_ = 0;  // when a stream last stood that only a daemon releases, as far as was seen
  uint32_t holds_ = 0;  // streams that stand, or are about to
  uint32_t stands_ = 0;  // the same for operations that copy engines move
  WatchedStreams watched_;
  WatchTurns turns_;
  CallHost<M, D> calls_;
  uint32_t gates_ = 0;  // operations under way of which a block may stay
  uint32_t captured_gates_ = 0;  // lanes of captured operations of which a block may stay
  bool replays_ = false;  // an operation of a replay was under way at the last look
  bool called_ = false;  // one that no stream orders
  uint32_t starts_ = 0;  // operations under way that began as a kernel
  uint32_t rendezvous_ = 0;  // likewise, that take that path
  uint32_t unmet_ = 0;  // of these, those that are not submitted yet
  uint32_t under_way_ = 0;  // all of them but those that copy engines move
  Alone<M> alone_;
  StreamRow row_;
  bool news_ = false;  // taken, and not acted on
  bool calls_missing_ = false;
  uint64_t missing_since_ = 0;
};

}  // namespace starling::device
