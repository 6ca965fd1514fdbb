// A thread block of the daemon and the part of it that it serves: mostly that of its number. A residency that
// only the host ends may fill a GPU that has little room, and so keep away the very kernels that its
// operations wait for, or have blocks of its own that find no place. So a block that is stuck there for long
// serves all parts in turn, and after a while, if that was in vain, gives its place back. And mostly such a
// residency has nothing to do: then one block, the *guard*, begins it and serves all parts in turn. Where
// there is more for it to do, its host is told, which calls the others; these *helpers* leave when nothing
// has gone on for the quit period.
//
// Where streams have *watches* (StreamPolicy::watches), a block of the daemon is in the stream behind its
// wait, so whenever one stands a block is at hand, and needs no launch: its host wakes it, if a
// daemon does not come. Watches come when the GPU comes to them, so nobody can number residencies before:
// whoever comes takes part in the one under way, or begins the next. One that comes when its stream may go on
// leaves at once.
//
//   begin ── claim a part: our own, else the next that nobody has
//     ├──▶ serve it (device/daemon.h) ── nothing goes on, or parts lack blocks ──▶ claim the next, give it up
//     │                                    └── still nothing, and another block serves ──▶ leave
//     ├── the residency ends ──▶ close the part; where blocks have roamed, those that nobody has, too
//     │                            └── a watch, a guard that is not dismissed ──▶ the next one
//     └── a watch's stream may go on ──▶ give up the part, leave; so do all blocks of a watch but the first,
//                                        where nothing goes on
//
// A part is closed once in a residency, by whoever has it then, so what is left to do is announced as ever; a
// watch that is the last to go announces without closing.
#pragma once
#include "device/daemon.h"

namespace starling::device {

template <class M>
class DaemonBlock {
 public:
  STARLING_HOST_DEVICE DaemonBlock(M& machine, const DaemonArguments& arguments, BlockState& state)
      : m_(machine),
        a_(arguments),
        d_(*arguments.daemon),
        p_(*d_.parts),
        s_(state),
        own_(machine.block_index()) {}

  // Until it leaves; a watch, until its stream may go on. The same result on all threads.
  STARLING_HOST_DEVICE LeaveReason run() {
    for (;;) {
      if (leads(m_)) arrive();
      m_.barrier();
      const LeaveReason reason = serve();
      if (a_.tenured == 0) return reason;
      if (leads(m_)) depart();
      if (!m_.any(leads(m_) && comes_again(reason))) return reason;
    }
  }

 private:
  // Who has to be there takes part in the next residency: a watch that was sent away, unless it gave its
  // place back, and a guard whose helpers, or those of an earlier one, ended this one. What was left then its
  // host may have taken for known to the guard, so that looks once more when it is dismissed.
  STARLING_HOST_DEVICE bool comes_again(LeaveReason reason) {
    if (gives_way() && reason == LeaveReason::kElsewhere && goes_on()) return false;
    if (watches(a_)) return !is_released(m_, a_);
    if (!anchors() || reason == LeaveReason::kExit || last_look_) return false;
    if (goes_on()) return false;  // it had no part, and others serve
    last_look_ = is_dismissed(m_, a_);
    return true;
  }

  STARLING_HOST_DEVICE LeaveReason serve() {
    LeaveReason reason = LeaveReason::kElsewhere;
    came_at_ = m_.now();
    for (Visit visit{came_at_, true, gives_way()}; s_.part != kNoPart; visit.first = false) {
      m_.become(s_.part);
      reason = Daemon<M>(m_, a_, s_, visit).run();
      if (leads(m_)) s_.part = next_part(reason);
      m_.barrier();
    }
    return reason;
  }

  // All below by the leader.

  STARLING_HOST_DEVICE uint32_t next_part(LeaveReason reason) {
    if (reason == LeaveReason::kElsewhere) return elsewhere();
    if (reason != LeaveReason::kReleased) return after_closing();
    release_part();
    return kNoPart;
  }

  // Only who has a part counts as serving: others rely on it to see to theirs. Block 0, which brings the
  // host's submissions, has to have one: there are as many as blocks, and who changes them has two for a
  // moment only. A watch's first block has nothing else to do.
  STARLING_HOST_DEVICE void arrive() {
    closing_ = false;
    in_vain_ = 0;
    s_.part = kNoPart;
    number_ = a_.tenured != 0 ? take_part() : a_.launch;
    s_.number = number_;
    if (number_ == kNoTenure) return;
    asked_ = false;
    if (is_counted()) m_.fetch_add(&p_.anchors, 1);
    // Release: as in elsewhere().
    if (a_.guards != 0 || a_.tenured != 0) m_.store_release(&p_.roamed, number_);
    s_.part = a_.tenured != 0 ? claim_or_wait() : claim_of_own();
    if (s_.part != kNoPart) m_.fetch_add(&p_.serving, 1);
  }

  STARLING_HOST_DEVICE uint32_t claim_of_own() {
    uint32_t part = claim(own_);
    while (part == kNoPart && own_ == 0 && goes_on()) part = claim(own_);
    return part;
  }

  STARLING_HOST_DEVICE uint32_t claim_or_wait() {
    const uint64_t arrived_at = m_.now();
    for (uint32_t attempt = 0;; ++attempt) {
      const bool waits = waits_for_part(arrived_at);  // before the look: who goes gives its part up first
      const uint32_t part = claim(own_);
      if (part != kNoPart || !waits) return part;
      m_.pause(attempt);
    }
  }

  STARLING_HOST_DEVICE bool waits_for_part(uint64_t arrived_at) {
    // Where nobody serves, who goes has the parts for a moment (release_part).
    return (anchors() || m_.load_relaxed(&p_.serving) == 0 || succeeds_watches(arrived_at)) && goes_on() &&
           !is_released(m_, a_) && !is_dismissed(m_, a_);
  }
  // The residency does, as far as one look without an order says.
  STARLING_HOST_DEVICE bool goes_on() const { return m_.load_relaxed(&d_.drain) < number_; }

  // Watches have parts, and leave when their operation is complete, or nothing goes on. If fewer blocks than
  // parts were left then, all of them would go from part to part for as long as the residency lasts. Like who
  // leaves_quietly(), it gives its place back when nothing goes on.
  STARLING_HOST_DEVICE bool succeeds_watches(uint64_t arrived_at) {
    const uint64_t period = d_.scheduling.quit_period;
    // Acquire: pairs with depart(); the parts of those that have gone are free. Blocks that go from part to
    // part may hide the last of them from one look.
    return (m_.load_acquire(&p_.anchors) > 0 || m_.load_relaxed(&p_.serving) < d_.block_count) &&
           !(m_.expired(arrived_at, period) && none_progresses(m_, d_, period));
  }

  // ---- tenure: whoever comes takes part in the residency under way, or begins one -----------------------

  static constexpr uint64_t kNoTenure = 0;

  // Somebody relies on it to be there, whatever others do: of a watch on its first block alone.
  STARLING_HOST_DEVICE bool anchors() const { return a_.stays != 0 && !helps(a_) && own_ == 0; }
  // The others make it faster, and leave where nothing goes on, or after long: on a GPU that others fill,
  // start kernels may find no place beside them.
  STARLING_HOST_DEVICE bool gives_way() const { return watches(a_) && own_ != 0; }
  // In DaemonParts::anchors; who gives way too, for its part is not free before it has gone.
  STARLING_HOST_DEVICE bool is_counted() const { return a_.tenured != 0 && (anchors() || gives_way()); }

  // The residency's number. Who comes again waits until the last one is over; kNoTenure: a watch's stream may
  // go on.
  STARLING_HOST_DEVICE uint64_t take_part() {
    for (uint32_t attempt = 0;; ++attempt) {
      if (is_released(m_, a_)) return kNoTenure;
      const uint64_t before = m_.load_relaxed(&p_.tenure);
      const uint64_t number = before >> kTenureShift;
      const bool under_way = before % (uint64_t(1) << kTenureShift) != 0;
      // Acquire: pairs with the release of `drain` in Daemon::quit().
      const bool ends = under_way && (number == number_ || m_.load_acquire(&d_.drain) >= number);
      if (ends || (watches(a_) && is_dismissed(m_, a_))) {
        m_.pause(attempt);
        continue;
      }
      const uint64_t after = under_way ? before + 1 : ((number + 1) << kTenureShift) + 1;
      // Acquire and release, as depart(): the last residency is over, and its blocks have stored all that
      // they had to.
      if (m_.compare_exchange(&p_.tenure, before, after) == before) return after >> kTenureShift;
    }
  }
  STARLING_HOST_DEVICE void depart() {
    if (number_ == kNoTenure) return;
    if (is_counted()) m_.fetch_add(&p_.anchors, ~uint64_t(0));
    m_.fetch_add(&p_.tenure, ~uint64_t(0));
  }

  // A watch whose stream goes on. Whoever serves still sees to what it had. If nobody does, it says what is
  // left: as if it closed all parts that nobody has, but without a look at what could go on. Who comes
  // meanwhile serves, and does so in turn.
  STARLING_HOST_DEVICE void release_part() {
    const uint32_t part = s_.part;
    if (closing_) {
      say_what_is_left(part);
    } else {
      give_up(part);
      if (others_serve()) return;
      stop_serving();
    }
    for (uint32_t k = 0; k < d_.block_count; ++k) {
      if (!try_claim(k)) continue;
      say_what_is_left(k);
      give_up(k);
    }
  }
  // Of a part that is ours. Release: what is left, before the news; pairs with the host's exchange.
  STARLING_HOST_DEVICE void say_what_is_left(uint32_t part) {
    if (leaves_work(m_, d_, part)) m_.store_release(d_.work, 1);
  }

  // The first part from `from` on that nobody has; kNoPart: none.
  STARLING_HOST_DEVICE uint32_t claim(uint32_t from) {
    for (uint32_t k = 0; k < d_.block_count; ++k) {
      const uint32_t part = (from + k) % d_.block_count;
      if (try_claim(part)) return part;
    }
    return kNoPart;
  }
  STARLING_HOST_DEVICE bool try_claim(uint32_t part) {
    uint64_t* holder = &p_.holders[part];
    const uint64_t before = m_.load_relaxed(holder);
    // Acquire: pairs with the release in give_up(); the part is as its last block left it.
    return before != number_ && m_.compare_exchange(holder, before, number_) == before;
  }
  // Release: all that we did with the part; pairs with the acquire in claim().
  STARLING_HOST_DEVICE void give_up(uint32_t part) { m_.store_release(&p_.holders[part], 0); }

  // Nothing goes on here. kNoPart: we leave, and somebody else sees to our part.
  STARLING_HOST_DEVICE uint32_t elsewhere() {
    const uint32_t part = s_.part;
    // Release: pairs with the acquire in after_closing().
    if (m_.load_relaxed(&p_.roamed) != number_) m_.store_release(&p_.roamed, number_);
    in_vain_ = s_.progressed != 0 ? 0 : in_vain_ + 1;
    if (a_.guards != 0 && !helps(a_) && s_.progressed != 0) ask_for_help(part);
    if (!closing_ && gives_place_back()) {
      in_vain_ = 0;
      give_up(part);
      if (others_serve()) return kNoPart;
      const uint32_t again = claim(part);
      if (again != kNoPart) return again;
      if (!goes_on()) return after_closing();  // others have closed it, or left theirs to us
      stop_serving();  // who has just come, and is not counted yet, has it
      return kNoPart;
    }
    const uint32_t next = claim(part + 1);
    if (next == kNoPart) return part;
    give_up(part);
    return next;
  }

  STARLING_HOST_DEVICE bool gives_place_back() const {
    if (gives_way())
      return none_progresses(m_, d_, p_.roam_after) || m_.expired(came_at_, d_.scheduling.residency_limit);
    if (leaves_quietly(m_, a_)) return none_progresses(m_, d_, d_.scheduling.quit_period);
    return in_vain_ > d_.block_count && own_ != 0 && none_progresses(m_, d_, p_.leave_after);
  }

  // What has gone on here goes on, perhaps, for long. The operation is not complete, since our task is not
  // done: news of it comes before that, as in push_parked(). Release: nothing hangs on it.
  STARLING_HOST_DEVICE void ask_for_help(uint32_t part) {
    if (d_.blocks[part].task_count == 0 || m_.load_relaxed(&p_.serving) >= d_.block_count) return;
    // Once in a residency, where the host does not know how many serve.
    if (a_.tenured != 0 && asked_) return;
    asked_ = true;
    m_.store_release(d_.work, 1);
  }

  // One less serves, unless we are the last. Acquire and release, as in stop_serving(): who closes parts
  // after us finds the one that we gave up.
  STARLING_HOST_DEVICE bool others_serve() {
    for (;;) {
      const uint64_t before = m_.load_relaxed(&p_.serving);
      if (before < 2) return false;
      if (m_.compare_exchange(&p_.serving, before, before - 1) == before) return true;
    }
  }
  STARLING_HOST_DEVICE void stop_serving() { m_.fetch_add(&p_.serving, ~uint64_t(0)); }

  // Our part is closed, and stays so until the next residency. Who gave theirs up has left it to us.
  STARLING_HOST_DEVICE uint32_t after_closing() {
    if (!closing_) stop_serving();
    closing_ = true;
    // Acquire: pairs with the release in elsewhere().
    return m_.load_acquire(&p_.roamed) == number_ ? claim(own_) : kNoPart;
  }

  M& m_;
  const DaemonArguments& a_;
  DaemonMemory& d_;
  DaemonParts& p_;
  BlockState& s_;
  const uint32_t own_;
  uint64_t number_ = 0;  // of the residency; then, of the last one in which we took part
  uint64_t came_at_ = 0;  // to the first part in it
  uint32_t in_vain_ = 0;  // parts visited since the last that went on
  bool closing_ = false;
  bool asked_ = false;  // for help
  bool last_look_ = false;  // dismissed
};

// The whole daemon, on every thread of every block.
template <class M>
STARLING_HOST_DEVICE STARLING_INLINE LeaveReason run_daemon(M& machine, const DaemonArguments& arguments,
                                                            BlockState& state) {
  if constexpr (requires { M::kRoams; }) {
    return DaemonBlock<M>(machine, arguments, state).run();
  } else {
    if constexpr (requires { machine.become(0u); })
      if (arguments.daemon->parts != nullptr) return DaemonBlock<M>(machine, arguments, state).run();
    return Daemon<M>(machine, arguments, state, {machine.now(), true, false}).run();
  }
}

}  // namespace starling::device
