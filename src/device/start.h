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
// The grid is Handover::width: blocks beyond the operation's own only hand their turn on, and count as
// finished.
#pragma once
#include <cstddef>

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
  uint64_t patience;  // with `yield`: the value that it has until others come
  const uint64_t* yield;  // host memory; not null: a stuck block stays as long as it does not change
  const BlockMemory* blocks;  // the daemon's: is something more urgent? Null: the order is FIFO, nothing is
  TraceRing* trace;  // [width], each written by one kernel at a time; null: none
  uint32_t plan_bytes;  // the plan's total_bytes: it is brought near without a look at its header
};

// The block's fast memory. Written by the leader, read by all after a barrier.
struct alignas(16) StartState {
  SlotPool pool;  // empty: the daemon's blocks own the pool's slots, so only private slots are used here
  uint32_t turn;  // it is ours
  uint32_t urgent;  // the daemon has something more urgent
  uint32_t stays;
  Combine operands;
  NearEnds ends;
  // Where memory is far: copies of the argument's, with pointers to what is near.
  Operation operation;
  Handover handover;
};

template <class M>
class StartKernel {
 public:
  STARLING_HOST_DEVICE StartKernel(M& machine, const StartArguments& arguments, StartState& state)
      : m_(machine), a_(arguments), op_(&arguments.operation), lane_(arguments.lane), s_(state) {}

  // On all threads; the same result on all. True: the leader, alone, must call hold() before the block ends.
  STARLING_HOST_DEVICE bool run() {
    look();
    if constexpr (M::kStagesPlans)
      bring_near();
    else
      m_.barrier();
    switch (verdict()) {
      case Verdict::kRun: interpret(); break;
      case Verdict::kSkip:
        if (leads(m_)) finish(Outcome::kDone);
        break;
      case Verdict::kLeave:
        if (leads(m_)) park();
        break;
    }
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
  enum class Verdict : uint32_t { kRun, kSkip, kLeave };

  // What decides whether we run, looked at by the leader while the others bring near what the operation
  // needs. A barrier must follow.
  STARLING_HOST_DEVICE void look() {
    if (!leads(m_)) return;
    s_.turn = has_turn(m_, a_.handover, op_->sequence);
    s_.pool = SlotPool{nullptr, 0, 0};
    s_.stays = s_.urgent = 0;
    if (a_.blocks == nullptr) return;
    // Relaxed: a hint. The daemon, whose queue is sorted, will find the right moment.
    const uint64_t urgent = m_.load_relaxed(&a_.blocks[m_.block_index()].urgent);
    s_.urgent = urgent > uint64_t(int64_t(kUrgentBase) + a_.priority);
  }

  STARLING_HOST_DEVICE Verdict verdict() const {
    if (s_.turn == 0) return Verdict::kLeave;
    if (m_.block_index() >= op_->block_count) return Verdict::kSkip;
    return s_.urgent != 0 ? Verdict::kLeave : Verdict::kRun;
  }

  // The argument itself is not written to, and its pointers lead far away. Ends with a barrier.
  STARLING_HOST_DEVICE void bring_near() {
    Lane* lane = m_.stage_lane(0, &a_.near);
    const bool runs = m_.block_index() < a_.operation.block_count;
    const PlanHeader* plan = a_.operation.plan;
    if (runs) plan = m_.stage_plan(0, plan, a_.plan_bytes);
    m_.stage_operation(s_.operation, a_.operation, a_.near);
    if (leads(m_)) s_.handover = a_.handover;
    m_.barrier();
    if (leads(m_)) {
      lane->handover = &s_.handover;
      s_.operation.plan = plan;
    }
    lane_ = lane;
    op_ = &s_.operation;
    m_.barrier();
  }

  STARLING_HOST_DEVICE void interpret() {
    LaneBlock& block = lane_->blocks[m_.block_index()];
    const Execution execution{lane_, op_, &block, &s_.pool, nullptr, &s_.operands, near_ends(m_, s_.ends)};
    Budget budget = a_.budget;
    Interpreter<M> interpreter(m_, execution, budget);
    DynamicContext context{op_->sequence, 0, 0, 0, 0};
    note(TraceEvent::kRun, 0);
    Outcome outcome = interpreter.run(context);
    while (a_.yield != nullptr && outcome == Outcome::kStuck && !m_.any(leads(m_) && !patient()))
      outcome = interpreter.run(context);
    m_.barrier();  // all threads are through with the part
    if (!leads(m_)) return;
    if (outcome != Outcome::kStuck) return finish(outcome);
    note(TraceEvent::kPark, uint64_t(context.instruction) << 32 | interpreter.awaits(context).peer);
    // It is our turn, so the context is ours to write, until park() gives it away.
    block.context = context;
    park();
  }

  // Leader only. Its stream is held, and nothing else is under way: nobody needs this place, and a daemon
  // would have to be launched first. Until the host says that others have come, or releases the stream.
  STARLING_HOST_DEVICE bool patient() {
    // Acquire: pairs with end_solo(); nothing hangs on it.
    if (m_.load_acquire(a_.yield) != a_.patience) return false;
    return !reached(m_.load_relaxed(&lane_->handover->done[op_->sequence % M::kLaneDepth].done),
                    op_->sequence + 1);
  }

  // Leader only. Nothing of the part is touched after this.
  STARLING_HOST_DEVICE void park() {
    if (a_.gate != 0) s_.stays = becomes_gate();
    leave_operation();
    push_parked(m_, *a_.daemon, {0, op_->sequence, lane_->id, a_.priority, op_->block_count, 0});
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

  // Leader only.
  STARLING_HOST_DEVICE void finish(Outcome outcome) {
    note(outcome == Outcome::kFault ? TraceEvent::kFault : TraceEvent::kComplete, 0);
    auto&& m = fenced(m_);
    hand_on(m, *lane_, op_->sequence);
    if (!count_finished(m, *lane_, *op_)) return;
    note(TraceEvent::kPublish, 0);
    m_.notify_host();
  }

  STARLING_HOST_DEVICE void note(TraceEvent event, uint64_t detail) {
    if (a_.trace != nullptr && leads(m_))
      trace(m_, a_.trace[m_.block_index()], event, lane_->id, op_->sequence, detail);
  }

  M& m_;
  const StartArguments& a_;
  const Operation* op_;
  Lane* lane_;
  StartState& s_;
};

}  // namespace starling::device
