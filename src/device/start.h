// The start kernel: an operation on a stream begins here, as an ordinary kernel. In the ordered case it ends
// here too. A block that is stuck saves its context as the daemon does, leaves the operation to the daemon's
// block of the same number, and gives its place back.
//
//   our turn? ── no, or the daemon runs something more urgent ──▶ left unstarted ─┐
//     │ yes                                                                       ├─▶ leave, or stay as the
//     gate
//   interpret with a budget ── stuck ──▶ context saved, left to the daemon ───────┘
//     │ done
//   hand the part on, count, and the last block tells streams and host ──▶ leave
//
// The grid is the operation's blocks. Every operation takes its turn on all parts of the lane, so block 0
// also hands on the parts that have no block. Operations of different lanes may begin in one kernel: each has
// blocks and an argument of its own there, as if it had a stream of its own.
#pragma once
#include <cstddef>

#include "device/alone.h"
#include "device/bound.h"
#include "device/bound_pull.h"
#include "device/captured.h"
#include "device/handover.h"
#include "device/interpreter.h"
#include "device/machine.h"
#include "device/trace.h"
#include "wire/daemon.h"

namespace starling::device {

// A kernel's one argument. What the host knows travels by value: reading it costs no round trip to memory.
// The host has written the operation into the lane's ring as well; where that ring is the host's, a block
// that parks copies the operation to where the daemon looks for it.
struct StartArguments {
  Operation operation;
  Lane near;
  Handover handover;
  Lane* lane;  // what `near` is a copy of
  DaemonMemory* daemon;
  int16_t priority;
  uint16_t gate;  // 1: if any block parks, one stays until the operation is complete: it holds the stream
  Budget budget;
  uint64_t patience;  // with `alone`: Alone::patience() at its entry
  AloneWords* alone;  // not null: a stuck block may stay (device/alone.h)
  const BlockMemory* blocks;  // the daemon's: is something more urgent? Null: the order is FIFO, nothing is
  TraceRing* trace;  // [width], each written by one kernel at a time; null: none
  uint32_t plan_bytes;  // the plan's total_bytes: it is brought near without a look at its header
  // Not null: the operation is captured, and has another number in each replay: the start kernel counts it,
  // and leaves it here for its gate (device/gate.h).
  uint64_t* captured = nullptr;
  // 1: the lane's operation before this one began as a kernel of the same stream, or both are captured. Where
  // that kernel has ended the operation, all it knew is there since ours began, so nothing needs to be
  // acquired (Turn::ended). A kernel that stays for calls may be that kernel itself: then its one block did.
  uint32_t follows = 0;
  BoundProgram bound = {};  // of the operation (device/bind.h)
};

// What is bound that a kernel begins with. The host knows it, and a kernel that need not ask has no code for
// the rest: it runs through its code once, so what lies between costs, as does what the compiler makes of so
// much.
// kGeneral: packets or pulls, without code of their own for those that are run once; kAny: with it.
enum class StartWay : uint32_t { kAny, kGeneral, kNone, kPackets, kPacketsOnce, kPulls, kPullsOnce };

STARLING_HOST_DEVICE inline StartWay way_of(const BoundProgram& bound) {
  if (bound.count == 0) return StartWay::kNone;
  if (bound.pulls != 0) return bound.once != 0 ? StartWay::kPullsOnce : StartWay::kPulls;
  return bound.once != 0 ? StartWay::kPacketsOnce : StartWay::kPackets;
}

// May a kernel of this way begin with what is bound? Else it is as if nothing were.
template <StartWay kWay>
STARLING_HOST_DEVICE bool has_code_for(const BoundProgram& bound) {
  if constexpr (kWay == StartWay::kAny || kWay == StartWay::kGeneral) return bound.count != 0;
  // The code for several tiles is for one as well.
  if constexpr (kWay == StartWay::kPackets) return bound.count != 0 && bound.pulls == 0;
  return way_of(bound) == kWay;
}

// Operations of different lanes that may begin in one kernel.
inline constexpr uint32_t kMostTogether = 8;

// Of which of them the kernel's block is: the first blocks are those of the first operation, then come the
// second's, and so on. `block` becomes its number in that operation.
STARLING_HOST_DEVICE inline uint32_t operation_of_block(const StartArguments* each, uint32_t& block) {
  uint32_t k = 0;
  for (; block >= each[k].operation.block_count; ++k) block -= each[k].operation.block_count;
  return k;
}

// The block's fast memory. Written by the leader, read by all after a barrier.
struct alignas(16) StartState {
  SlotPool pool;  // empty: the daemon's blocks own the pool's slots, so only private slots are used here
  uint32_t turn;  // it is ours
  uint32_t urgent;  // the daemon has something more urgent
  uint32_t stays;
  uint32_t left;  // the operation lies where the daemon looks for it
  uint64_t number;  // of a captured operation, in this replay ...
  Entrance entrance;  // ... and what this block does with it
  Combine operands[kOperandSets];
  NearEnds ends;
  BoundState bound;
  // Where memory is far: copies of the argument's, with pointers to what is near. Of a captured operation,
  // with its numbers.
  Operation operation;
  Handover handover;
};

// A block's place among the parts of its lane: what both ways through a start kernel do with it.
template <class M>
class StartBlock {
 protected:
  STARLING_HOST_DEVICE StartBlock(M& machine, const StartArguments& arguments) : m_(machine), a_(arguments) {}

  // Parts of the lane without a block in this operation, which are block 0's to hand on.
  STARLING_HOST_DEVICE uint32_t others() const {
    return m_.block_index() == 0 ? a_.handover.width - a_.operation.block_count : 0;
  }
  STARLING_HOST_DEVICE uint32_t other(uint32_t k) const { return a_.operation.block_count + k; }

  // Has the daemon something more urgent? Relaxed: a hint. Its queue is sorted, and finds the right moment.
  STARLING_HOST_DEVICE bool is_urgent() {
    if (a_.blocks == nullptr) return false;
    const uint64_t urgent = m_.load_relaxed(&a_.blocks[m_.block_index()].urgent);
    return urgent > uint64_t(int64_t(kUrgentBase) + a_.priority);
  }

  // All their turns are ours: those that fall to this thread. `m` releases what has acquired those.
  template <class Releasing>
  STARLING_HOST_DEVICE void hand_on_others(Releasing& m, uint64_t sequence, uint32_t thread,
                                           uint32_t threads) {
    for (uint32_t k = thread; k < others(); k += threads)
      hand_on_in_stream(m, a_.handover, other(k), sequence);
  }

  // Leader only: our part, and how many others were handed on.
  template <class Releasing>
  STARLING_HOST_DEVICE void finish(Releasing& m, const Lane& lane, const Handover& handover,
                                   const Ending& operation, uint32_t passed) {
    hand_on_in_stream(m, handover, m_.block_index(), operation.sequence);
    if (!count_finished(m, lane, &handover, operation, passed + 1)) return;
    note(TraceEvent::kPublish, operation.sequence, 0);
    m_.notify_host();
  }

  STARLING_HOST_DEVICE void note(TraceEvent event, uint64_t sequence, uint64_t detail) {
    if (a_.trace != nullptr && leads(m_))
      trace(m_, a_.trace[m_.block_index()], event, a_.near.id, sequence, detail);
  }

  M& m_;
  const StartArguments& a_;
};

// An operation that comes bound.
template <StartWay kWay, class M>
class BoundStart : StartBlock<M> {
 public:
  STARLING_HOST_DEVICE BoundStart(M& machine, const StartArguments& arguments, StartState& state)
      : StartBlock<M>(machine, arguments), s_(state) {}

  // On all threads, the same result on all: how many steps are done; 0: nothing was touched. `ended`: so is
  // the operation, on this block.
  STARLING_HOST_DEVICE uint32_t run(bool& ended) {
    if constexpr (requires { m_.await_stream(); }) m_.await_stream();
    if constexpr (kWay == StartWay::kGeneral)
      return a_.bound.pulls != 0 ? run_as<StartWay::kPulls>(ended) : run_as<StartWay::kPackets>(ended);
    else if constexpr (kWay != StartWay::kAny)
      return run_as<kWay>(ended);
    switch (way_of(a_.bound)) {
      case StartWay::kPullsOnce: return run_as<StartWay::kPullsOnce>(ended);
      case StartWay::kPulls: return run_as<StartWay::kPulls>(ended);
      case StartWay::kPacketsOnce: return run_as<StartWay::kPacketsOnce>(ended);
      default: return run_as<StartWay::kPackets>(ended);
    }
  }

 private:
  template <StartWay kOne>
  STARLING_HOST_DEVICE uint32_t run_as(bool& ended) {
    constexpr bool kOnce = kOne == StartWay::kPacketsOnce || kOne == StartWay::kPullsOnce;
    Combine& operands = s_.operands[0];
    if constexpr (kOne == StartWay::kPulls || kOne == StartWay::kPullsOnce)
      return run(BoundPull<M, kOnce>(m_, a_.bound, a_.operation, a_.near, a_.budget, s_.ends, operands),
                 ended);
    else
      return run(BoundRun<M, kOnce>(m_, a_.bound, a_.operation, a_.near, a_.budget, s_.bound, operands),
                 ended);
  }

  template <class Program>
  STARLING_HOST_DEVICE uint32_t run(Program&& program, bool& ended) {
    // In registers from here on: behind the fence at the end nothing is cached. Both by their own addresses:
    // one reference to either would be read as if it lay anywhere.
    Ending ending = Ending::of(a_.operation);
    uint64_t previous_target = a_.operation.previous_target;
    if (a_.captured != nullptr) {
      ending = Ending::of(s_.operation);
      previous_target = s_.operation.previous_target;
    }
    const uint64_t sequence = ending.sequence;
    // Each thread learns of the turn for itself, before it looks at what is the part's; where nothing is to
    // be acquired no load waits for another. First of what is mostly all, then of the rest.
    const uint32_t thread = m_.thread_index(), threads = m_.thread_count();
    const uint64_t turn = turn_of(m_.block_index());
    const uint64_t others_turn = thread < this->others() ? turn_of(this->other(thread)) : sequence;
    bool ready = is_past_fence(sequence, previous_target) && program.look([&] { return turn == sequence; });
    ready &= turn == sequence && others_turn == sequence;
    for (uint32_t k = thread + threads; k < this->others(); k += threads)
      ready &= turn_of(this->other(k)) == sequence;
    if (leads(m_)) ready &= !this->is_urgent();
    if (m_.any(!ready)) return 0;
    this->note(TraceEvent::kRun, sequence, 0);
    const uint32_t done = program.run(ended);
    m_.barrier();  // all threads have stored their packets and counted their ends
    program.ring();
    if (ended && m_.thread_index() < kLastThreads) end(ending);
    return done;
  }

  // The threads that hand parts on: of one warp, so that their fences are one.
  static constexpr uint32_t kLastThreads = 32;

  // Whose turn it is on the part. Relaxed, where the kernel before ours in our stream handed the part on: all
  // that it knew was there when ours began. Where somebody else did, it seems not to be ours, and the
  // interpreter acquires it.
  STARLING_HOST_DEVICE uint64_t turn_of(uint32_t part) {
    const Turn& turn = a_.handover.turns[part];
    // Acquire: as has_turn().
    return a_.follows == 0 ? m_.load_acquire(&turn.next) : m_.load_relaxed(&turn.ended);
  }

  // Are others through with connections that may have been theirs? Each thread asks before it looks at any.
  STARLING_HOST_DEVICE bool is_past_fence(uint64_t sequence, uint64_t previous_target) {
    if (a_.operation.fence_previous == 0 || sequence == 0) return true;
    // Acquire: as Interpreter::pass_fence(), which waits.
    const uint64_t finished = m_.load_acquire(&a_.near.finished[(sequence - 1) % M::kLaneDepth]);
    return reached(finished, previous_target);
  }

  // No turn is left to hand on once the operation counts as complete: the leader's stores come after those of
  // its warp.
  STARLING_HOST_DEVICE void end(const Ending& ending) {
    auto&& m = fenced_here(m_);
    const uint32_t thread = m_.thread_index(), threads = m_.thread_count();
    this->hand_on_others(m, ending.sequence, thread, threads < kLastThreads ? threads : kLastThreads);
    if constexpr (requires { m_.sync_warp(); }) m_.sync_warp();
    if (!leads(m_)) return;
    this->note(TraceEvent::kComplete, ending.sequence, 0);
    this->finish(m, a_.near, a_.handover, ending, this->others());
  }

  using StartBlock<M>::m_;
  using StartBlock<M>::a_;
  StartState& s_;
};

template <class M>
class StartKernel : StartBlock<M> {
 public:
  // The first `begun` steps are done, bound.
  STARLING_HOST_DEVICE StartKernel(M& machine, const StartArguments& arguments, StartState& state,
                                   uint32_t begun)
      : StartBlock<M>(machine, arguments),
        op_(&arguments.operation),
        lane_(arguments.lane),
        s_(state),
        begun_(begun) {}

  // On all threads; the same result on all. True: the leader, alone, must call hold() before the block ends.
  STARLING_HOST_DEVICE STARLING_INLINE bool run() {
    if constexpr (M::kStagesPlans) bring_near();
    if constexpr (requires { m_.await_stream(); }) m_.await_stream();
    if (a_.captured != nullptr) {
      if (leads(m_)) CapturedNumber<M>::put_into(s_.operation, s_.number, a_.handover.width);
      m_.barrier();
    }
    const bool missed = look();
    others_wait_ = m_.any(missed);
    if (a_.captured != nullptr && s_.entrance == Entrance::kEntersForAll && leads(m_)) park_others();
    if (s_.turn != 0 && (s_.urgent == 0 || begun_ != 0))
      interpret();
    else if (leads(m_))
      park();
    m_.barrier();
    return s_.stays != 0;
  }

  // The gate: holds the stream until the operation is complete, or the host poisons the flag. By the leader
  // alone: the other threads of the block may be gone.
  STARLING_HOST_DEVICE void hold() {
    const uint64_t* done = &lane_->handover->done[op_->sequence % M::kLaneDepth].done;
    // Acquire: pairs with the release in count_finished(): kernels behind us see what the operation wrote.
    for (uint32_t attempt = 0; !reached(m_.load_acquire(done), op_->sequence + 1); ++attempt)
      m_.pause(attempt);
  }

 private:
  using StartBlock<M>::m_;
  using StartBlock<M>::a_;
  using StartBlock<M>::others;
  using StartBlock<M>::other;
  using StartBlock<M>::note;

  // What decides whether we run: the turns of our part and of those without a block, each a thread's. True:
  // one of these is not there. A barrier must follow.
  STARLING_HOST_DEVICE bool look() {
    const uint32_t threads = m_.thread_count();
    bool missed = false;
    for (uint32_t k = threads - 1 - m_.thread_index(); k <= others(); k += threads) {
      const bool ours = has_turn(m_, a_.handover, k == 0 ? m_.block_index() : other(k - 1), op_->sequence);
      if (k == 0)
        s_.turn = ours;
      else
        missed |= !ours;
    }
    if (!leads(m_)) return missed;
    s_.pool = SlotPool{nullptr, 0, 0};
    s_.stays = s_.left = 0;
    s_.urgent = this->is_urgent();
    return missed;
  }

  // The argument itself is not written to, and its pointers lead far away. What is in it each takes one
  // thread: where every thread reads another word of an argument, they read one after the other. A barrier
  // must follow.
  STARLING_HOST_DEVICE void bring_near() {
    const PlanHeader* plan = bring_plan_near(m_, 0, a_.operation.plan, a_.plan_bytes);
    Lane* lane = m_.stage_lane(0, a_.near);
    m_.stage_operation(s_.operation, a_.operation, a_.near);
    if (leads(m_)) s_.handover = a_.handover;
    m_.barrier();
    if (leads(m_)) {
      lane->handover = &s_.handover;
      s_.operation.plan = plan;
    }
    lane_ = lane;
    op_ = &s_.operation;
  }

  STARLING_HOST_DEVICE STARLING_INLINE void interpret() {
    LaneBlock& block = lane_->blocks[m_.block_index()];
    const Execution execution{
        lane_, op_, &block, &s_.pool, nullptr, s_.operands, near_ends(m_, s_.ends), kOperandSets};
    Budget budget = a_.budget;
    for (uint32_t n = 0; n < begun_ && budget.ticks < budget.maximum; ++n) budget.raise(n >= a_.bound.heads);
    Interpreter<M> interpreter(m_, execution, budget);
    DynamicContext context{op_->sequence, 0, 0, begun_ != 0, begun_};
    if (begun_ != 0) {
      context.tile = begun_ / a_.bound.planned;
      context.instruction = begun_ % a_.bound.planned;
    }
    if (begun_ == 0) note(TraceEvent::kRun, op_->sequence, 0);
    Outcome outcome = interpreter.run(context);
    for (uint32_t round = 0; a_.alone != nullptr && outcome == Outcome::kStuck; ++round) {
      if (m_.any(leads(m_) && !stays(round))) break;
      outcome = interpreter.run(context);
    }
    m_.barrier();  // all threads are through with the part
    if (!leads(m_)) return;
    if (outcome != Outcome::kStuck) {
      note(outcome == Outcome::kFault ? TraceEvent::kFault : TraceEvent::kComplete, op_->sequence, 0);
      auto&& m = fenced(m_);
      const uint32_t passed = pass_others(m, op_->sequence);
      return this->finish(m, *lane_, *lane_->handover, Ending::of(*op_), passed);
    }
    note(TraceEvent::kPark, op_->sequence,
         uint64_t(context.instruction) << 32 | interpreter.awaits(context).peer);
    // It is our turn, so the context is ours to write, until park() gives it away.
    block.context = context;
    park();
  }

  // Leader only. Nothing else is under way: nobody needs this place. Until the host says that others have
  // come, or releases the streams that stand.
  STARLING_HOST_DEVICE bool stays(uint32_t round) {
    if (!keeps_place(m_, a_.alone, a_.patience, round)) return false;
    return !reached(m_.load_relaxed(&lane_->handover->done[op_->sequence % M::kLaneDepth].done),
                    op_->sequence + 1);
  }

  // Leader only. Nothing of the part is touched after this.
  STARLING_HOST_DEVICE void park() {
    auto&& m = fenced(m_);
    const uint32_t passed = pass_others(m, op_->sequence);
    // Not the last: our part is missing.
    if (passed != 0) count_finished(m_, *lane_, lane_->handover, Ending::of(*op_), passed);
    leave(m_.block_index());
  }

  // Leader only: parts whose blocks have left, for want of a place, to us. Nobody has touched them.
  STARLING_HOST_DEVICE void park_others() {
    for (uint32_t b = 0; b < op_->block_count; ++b)
      if (CapturedNumber<M>::has_left(m_, a_.handover.turns[b], op_->sequence)) leave(b);
    if (!CapturedNumber<M>::has_left(m_, a_.handover.turns[0], op_->sequence)) return;
    for (uint32_t b = op_->block_count; b < a_.handover.width; ++b) leave(b);
  }

  STARLING_HOST_DEVICE void leave(uint32_t part) {
    if (s_.left == 0) {
      if (a_.gate != 0) s_.stays = becomes_gate();
      leave_operation();
      s_.left = 1;
    }
    push_parked(m_, *a_.daemon, part, {0, op_->sequence, lane_->id, a_.priority, op_->block_count, 0});
  }

  // Leader only: the parts without a block are handed on, or, where their turn has not come, left to the
  // daemon. How many were handed on. `m` releases what look() has acquired.
  template <class Releasing>
  STARLING_HOST_DEVICE uint32_t pass_others(Releasing& m, uint64_t sequence) {
    if (!others_wait_) {
      this->hand_on_others(m, sequence, 0, 1);
      return others();
    }
    uint32_t passed = 0;
    for (uint32_t k = 0; k < others(); ++k) {
      if (has_turn(m_, *lane_->handover, other(k), sequence))
        hand_on_in_stream(m_, *lane_->handover, other(k), sequence);
      else {
        leave(other(k));
        continue;
      }
      ++passed;
    }
    return passed;
  }

  // Where the daemon's ring is not the one that the host has written. Each block that parks writes the same
  // words, each once: the daemon's block of one that parked earlier may read them by now. So our plan, which
  // may be a copy in this block's fast memory, must never stand there, not for a moment either.
  STARLING_HOST_DEVICE void leave_operation() {
    if (lane_->submitted == nullptr) return;
    static_assert(offsetof(Operation, plan) == 0 && sizeof(Operation) % sizeof(uint64_t) == 0);
    const auto* from = reinterpret_cast<const uint64_t*>(op_);
    auto* to = reinterpret_cast<uint64_t*>(&lane_->operations[op_->sequence % M::kLaneDepth]);
    // Relaxed: push_parked() releases them.
    m_.store_relaxed(&to[0], uint64_t(a_.operation.plan));
    for (uint32_t w = 1; w < sizeof(Operation) / sizeof(uint64_t); ++w) m_.store_relaxed(&to[w], from[w]);
  }

  // The first block that parks stays. Before the operation is given away: later its place in the ring may be
  // another's.
  STARLING_HOST_DEVICE bool becomes_gate() {
    uint64_t* gate = &lane_->handover->gates[op_->sequence % M::kLaneDepth];
    const uint64_t before = m_.load_relaxed(gate);
    return before != op_->sequence + 1 && m_.compare_exchange(gate, before, op_->sequence + 1) == before;
  }

  const Operation* op_;
  Lane* lane_;
  StartState& s_;
  bool others_wait_ = false;  // a part without a block was not ours yet
  const uint32_t begun_;  // steps that are done already
};

// The whole kernel, on every thread of every block. True: the block has left the operation to the daemon.
template <StartWay kWay = StartWay::kAny, class M>
STARLING_HOST_DEVICE STARLING_INLINE bool run_start(M machine, const StartArguments& arguments,
                                                    StartState& state) {
  uint32_t begun = 0;
  bool waited = false;  // others have left their parts to this block
  if (arguments.captured != nullptr) {
    if constexpr (requires { machine.await_stream(); }) machine.await_stream();
    if (leads(machine)) {
      CapturedNumber<M> number(machine, arguments.handover, arguments.near.finished,
                               arguments.operation.block_count);
      state.entrance = number.take(arguments.captured);
      state.number = number.number();
      state.operation = arguments.operation;
      number.put_into(state.operation, state.number, arguments.handover.width);
    }
    machine.barrier();
    if (state.entrance == Entrance::kLeaves) return false;
    waited = state.entrance == Entrance::kEntersForAll;
  }
  if constexpr (kWay != StartWay::kNone) {
    if (has_code_for<kWay>(arguments.bound) && !waited) {
      M own = machine;  // what a call is told of by address does not stay in registers
      bool ended = false;
      begun = BoundStart<kWay, M>(own, arguments, state).run(ended);
      if (ended) return false;
    }
  }
  StartKernel<M> kernel(machine, arguments, state, begun);
  if (kernel.run() && leads(machine)) kernel.hold();
  return state.left != 0;
}

}  // namespace starling::device
