// A thread block of the daemon and the part of it that it serves: mostly that of its number. A residency that
// only the host ends may fill a GPU that has little room, and so keep away the very kernels that its
// operations wait for, or have blocks of its own that find no place. So a block that is stuck there for long
// serves all parts in turn, and after a while, if that was in vain, gives its place back. And mostly such a
// residency has nothing to do: then one block, the *guard*, begins it and serves all parts in turn. Where
// there is more for it to do, its host is told, which calls the others; these *helpers* leave when nothing
// has gone on for the quit period.
//
//   begin ── claim a part: our own, else the next that nobody has
//     ├──▶ serve it (device/daemon.h) ── nothing goes on, or parts lack blocks ──▶ claim the next, give it up
//     │                                    └── still nothing, and another block serves ──▶ leave
//     └── the residency ends ──▶ close the part; where blocks have roamed, those that nobody has, too
//
// A part is closed once in a residency, by whoever has it then, so what is left to do is announced as ever.
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

  // Until it leaves. The same result on all threads.
  STARLING_HOST_DEVICE LeaveReason run() {
    if (leads(m_)) arrive();
    m_.barrier();
    LeaveReason reason = LeaveReason::kElsewhere;
    for (Visit visit{m_.now(), true}; s_.part != kNoPart; visit.first = false) {
      m_.become(s_.part);
      reason = Daemon<M>(m_, a_, s_, visit).run();
      if (leads(m_)) s_.part = reason == LeaveReason::kElsewhere ? elsewhere() : after_closing();
      m_.barrier();
    }
    return reason;
  }

 private:
  // All below by the leader.

  // Only who has a part counts as serving: others rely on it to see to theirs. Block 0, which brings the
  // host's submissions, has to have one: there are as many as blocks, and who changes them has two for a
  // moment only.
  STARLING_HOST_DEVICE void arrive() {
    // Release: as in elsewhere().
    if (a_.guards != 0) m_.store_release(&p_.roamed, a_.launch);
    do s_.part = claim(own_);
    while (s_.part == kNoPart && own_ == 0 && m_.load_relaxed(&d_.drain) < a_.launch);
    if (s_.part != kNoPart) m_.fetch_add(&p_.serving, 1);
  }

  // The first part from `from` on that nobody has; kNoPart: none.
  STARLING_HOST_DEVICE uint32_t claim(uint32_t from) {
    for (uint32_t k = 0; k < d_.block_count; ++k) {
      const uint32_t part = (from + k) % d_.block_count;
      uint64_t* holder = &p_.holders[part];
      const uint64_t before = m_.load_relaxed(holder);
      // Acquire: pairs with the release in give_up(); the part is as its last block left it.
      if (before != a_.launch && m_.compare_exchange(holder, before, a_.launch) == before) return part;
    }
    return kNoPart;
  }
  // Release: all that we did with the part; pairs with the acquire in claim().
  STARLING_HOST_DEVICE void give_up(uint32_t part) { m_.store_release(&p_.holders[part], 0); }

  // Nothing goes on here. kNoPart: we leave, and somebody else sees to our part.
  STARLING_HOST_DEVICE uint32_t elsewhere() {
    const uint32_t part = s_.part;
    // Release: pairs with the acquire in after_closing().
    if (m_.load_relaxed(&p_.roamed) != a_.launch) m_.store_release(&p_.roamed, a_.launch);
    in_vain_ = s_.progressed != 0 ? 0 : in_vain_ + 1;
    if (a_.guards != 0 && !helps(a_) && s_.progressed != 0) ask_for_help(part);
    if (!closing_ && gives_place_back()) {
      in_vain_ = 0;
      give_up(part);
      if (others_serve()) return kNoPart;
      const uint32_t again = claim(part);
      return again != kNoPart ? again : after_closing();  // others have closed it, or left theirs to us
    }
    const uint32_t next = claim(part + 1);
    if (next == kNoPart) return part;
    give_up(part);
    return next;
  }

  STARLING_HOST_DEVICE bool gives_place_back() const {
    if (helps(a_)) return none_progresses(m_, d_, d_.scheduling.quit_period);
    return in_vain_ > d_.block_count && own_ != 0 && none_progresses(m_, d_, p_.leave_after);
  }

  // What has gone on here goes on, perhaps, for long. The operation is not complete, since our task is not
  // done: news of it comes before that, as in push_parked(). Release: nothing hangs on it.
  STARLING_HOST_DEVICE void ask_for_help(uint32_t part) {
    if (d_.blocks[part].task_count > 0 && m_.load_relaxed(&p_.serving) < d_.block_count)
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
    return m_.load_acquire(&p_.roamed) == a_.launch ? claim(own_) : kNoPart;
  }

  M& m_;
  const DaemonArguments& a_;
  DaemonMemory& d_;
  DaemonParts& p_;
  BlockState& s_;
  const uint32_t own_;
  uint32_t in_vain_ = 0;  // parts visited since the last that went on
  bool closing_ = false;
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
    return Daemon<M>(machine, arguments, state, {machine.now(), true}).run();
  }
}

}  // namespace starling::device
