// The daemon: the resident executor of one rank, seen from one of its blocks (DFCCL §4, Algorithm 1).
//
//   repeat   fetch submissions and what start kernels parked
//            for each task: load context, run with its budget, complete or park
//   until    idle or stuck for the quit period, past the residency limit, drained, or told to exit
//
// Everything needed to go on later is in DaemonMemory, BlockMemory and the lanes; BlockState is scratch that
// is empty at each launch. Nobody is asked: each rank decides alone (contract, point 3).
#pragma once
#include "device/completion_queue.h"
#include "device/daemon_state.h"
#include "device/handover.h"
#include "device/interpreter.h"
#include "device/leaving.h"
#include "device/machine.h"
#include "device/submission_queue.h"
#include "device/task_queue.h"
#include "device/trace.h"
#include "wire/daemon.h"

namespace starling::device {

template <class M>
class Daemon {
 public:
  STARLING_HOST_DEVICE Daemon(M& machine, const DaemonArguments& arguments, BlockState& state, Visit visit)
      : m_(machine),
        a_(arguments),
        d_(*arguments.daemon),
        s_(state),
        b_(arguments.daemon->blocks[machine.block_index()]),
        visit_(visit) {}

  // Until it leaves. The same result on all threads.
  STARLING_HOST_DEVICE LeaveReason run() {
    if (leads(m_)) enter();
    for (uint32_t fruitless = 0;;) {
      m_.barrier();
      if (leads(m_)) begin_pass(fruitless);
      m_.barrier();
      if (s_.leave != 0) break;
      const bool progressed = pass();
      fruitless = progressed ? 0 : fruitless + 1;
      if (progressed && d_.parts != nullptr && leads(m_)) s_.progressed = 1;
    }
    return LeaveReason(s_.leave - 1);
  }

 private:
  STARLING_HOST_DEVICE void enter() {
    for (ActiveSlot& slot : s_.slots) slot.valid = 0;
    s_.leave = s_.progressed = 0;
    last_progress_ = b_.last_progress;
    if (!visit_.first) return;
    ++b_.counters.launches;
    note_progress(visit_.launched_at);
    trace_at(m_, b_.trace, visit_.launched_at, TraceEvent::kLaunch, ~0u, a_.launch, 0);
  }

  // Leader only: new tasks in, then stay or leave.
  STARLING_HOST_DEVICE void begin_pass(uint32_t fruitless) {
    ++b_.counters.passes;
    if (d_.parked != nullptr && d_.scheduling.priority_order) m_.store_relaxed(&b_.urgent, urgent_);
    urgent_ = 0;
    flush_unpublished();
    if (fruitless == 0) m_.busy();
    // FIFO: read on when the queue is empty or stuck. Priority: always (DFCCL §4.3, order adjusting policy).
    const bool want = d_.scheduling.priority_order || b_.task_count == 0 || fruitless > 0;
    const bool arrived = want && fetch() + adopt() > 0;
    if (arrived || (fruitless == 0 && ran_)) note_progress(m_.now());
    s_.task_count = b_.task_count;
    const uint32_t leave = decide(fruitless);
    ran_ = true;
    s_.leave = leave;
    if (leave != 0)
      quit(LeaveReason(leave - 1));
    else if (fruitless > 0 && !arrived)
      // Nobody rings when a completion that found no place would find one: the first pass does not sleep.
      m_.idle(b_.unpublished_count > 0 ? 1 : fruitless);
  }

  STARLING_HOST_DEVICE uint32_t fetch() {
    Submission submission;
    uint32_t count = 0;
    while (count < d_.scheduling.fetch_batch &&
           fetch_submission(m_, d_.submissions, m_.block_index(), b_.submissions_read, submission)) {
      ++count;
      accept(submission);
    }
    return count;
  }

  // What start kernels left to this block.
  STARLING_HOST_DEVICE uint32_t adopt() {
    uint32_t count = 0;
    for (Parked* parked; count < d_.scheduling.fetch_batch && (parked = next_parked(m_, d_)); ++count) {
      accept({parked->lane, parked->priority, parked->block_count, 0, parked->sequence});
      ++d_.parked[m_.block_index()].head;
    }
    return count;
  }

  STARLING_HOST_DEVICE void accept(Submission submission) {
    if (returns_slot(submission)) {
      if (submission.sequence - 1 == m_.block_index()) b_.pool.free[b_.pool.free_count++] = submission.lane;
      return;
    }
    if (submission.block_count == 0) {
      // Every block reads the exiting submission; all of them store the same value. No data goes with
      // it, so decide() reads it without an order.
      m_.store_release(&d_.exited, 1);
      return;
    }
    Lane& lane = lane_of(submission.lane);
    LaneBlock& block = lane.blocks[m_.block_index()];
    submission.sequence = whole_sequence(last_sequence(lane, block), submission.sequence);
    if (reached(submission.sequence, block.fetched)) block.fetched = submission.sequence + 1;
    trace(m_, b_.trace, TraceEvent::kFetch, submission.lane, submission.sequence, 0);
    if (m_.block_index() >= submission.block_count && !awaits_turn(lane, submission.sequence)) {
      if (block.pending == 0) block.next = block.fetched;
      return;
    }
    const bool queued = block.pending != 0;
    const uint64_t bit = uint64_t(1) << (submission.sequence % 64);
    block.pending |= bit;
    if (submission.marked) lane.handover->turns[m_.block_index()].marked |= bit;
    if (queued) {
      // Behind the lane's earlier operation; the task is there already. A start kernel may park after a later
      // operation came through the submission queue.
      if (!reached(submission.sequence, block.next)) block.next = submission.sequence;
      return;
    }
    block.next = submission.sequence;
    insert_task(b_, {submission.lane, submission.priority, b_.arrivals++}, d_.scheduling.priority_order);
  }

  // One near the lane's newest operation: entries name sequences by their low bits. Operations that run as
  // start kernels do not come by here, but their turns do.
  STARLING_HOST_DEVICE uint64_t last_sequence(const Lane& lane, const LaneBlock& block) {
    return passes_turns(lane) ? m_.load_relaxed(&lane.handover->turns[m_.block_index()].next) : block.fetched;
  }

  // In a lane that streams use, a block hands on its turn also in operations that have no part for it.
  STARLING_HOST_DEVICE bool passes_turns(const Lane& lane) const {
    return lane.handover != nullptr && m_.block_index() < lane.handover->width;
  }

  // An operation from before the first stream came to the lane is read late: it has no turn.
  STARLING_HOST_DEVICE bool awaits_turn(const Lane& lane, uint64_t sequence) {
    return passes_turns(lane) &&
           reached(sequence, m_.load_relaxed(&lane.handover->turns[m_.block_index()].next));
  }

  STARLING_HOST_DEVICE uint32_t decide(uint32_t fruitless) {
    auto reason = [](LeaveReason r) { return uint32_t(r) + 1; };
    if (is_released(m_, a_)) return reason(LeaveReason::kReleased);
    // Who came when others had left runs a task first: start kernels that have the rest may wait for it.
    if (ran_ && is_drained()) return reason(LeaveReason::kDrained);
    if (roams(fruitless)) return reason(LeaveReason::kElsewhere);
    if (b_.unpublished_count > 0) return 0;
    if (b_.task_count == 0 && m_.load_relaxed(&d_.exited)) return reason(LeaveReason::kExit);
    if (a_.stays || (d_.scheduling.unbounded && b_.task_count > 0)) return 0;
    // It ends nothing for who has to be there: it goes when it looks whether to roam.
    if (a_.tenured && leaves_quietly(m_, a_)) return 0;
    if (fruitless > 0 && nobody_progresses(d_.scheduling.quit_period))
      return reason(b_.task_count == 0 ? LeaveReason::kIdle : LeaveReason::kStuck);
    if (m_.expired(visit_.launched_at, d_.scheduling.residency_limit)) return reason(LeaveReason::kResidency);
    return 0;
  }

  // Where a residency does not end by itself: nothing goes on anywhere, or some part has no block any more.
  STARLING_HOST_DEVICE bool roams(uint32_t fruitless) {
    if (!(a_.stays || a_.tenured) || d_.parts == nullptr) return false;
    if (fruitless == 0 || fruitless % kVisitPasses != 0) return false;
    if (leaves_quietly(m_, a_) && nobody_progresses(d_.scheduling.quit_period)) return true;
    if (visit_.gives_way && (nobody_progresses(d_.parts->roam_after) ||
                             m_.expired(visit_.launched_at, d_.scheduling.residency_limit)))
      return true;
    if (m_.load_relaxed(&d_.parts->roamed) != number()) return nobody_progresses(d_.parts->roam_after);
    return m_.load_relaxed(&d_.parts->serving) < d_.block_count || nobody_progresses(d_.parts->leave_after);
  }

  // Mostly not, and a look without an order says so: an acquire would forget what the block has in its cache.
  STARLING_HOST_DEVICE bool is_drained() {
    if (m_.load_relaxed(&d_.drain) < number()) return a_.tenured != 0 && is_dismissed(m_, a_);
    // Acquire: pairs with the release of `drain` in quit(), or, without watches, in the host that ends the
    // residency.
    return m_.load_acquire(&d_.drain) >= number();
  }
  STARLING_HOST_DEVICE uint64_t number() const { return a_.tenured != 0 ? s_.number : a_.launch; }
  STARLING_HOST_DEVICE bool is_broken(const Lane& lane) {
    if (m_.load_relaxed(lane.fault) == 0) return false;
    // Acquire: pairs with the release of the host that broke the lane (wire/arena.h, LaneShared::fault).
    return m_.load_acquire(lane.fault) != 0;
  }

  STARLING_HOST_DEVICE void note_progress(uint64_t now) {
    last_progress_ = now;
    m_.store_relaxed(&b_.last_progress, now);
  }

  // An idle block must not send busy ones away: all have to be without progress for so long.
  STARLING_HOST_DEVICE bool nobody_progresses(uint64_t period) {
    return m_.expired(last_progress_, period) && none_progresses(m_, d_, period);
  }

  // All blocks leave together: the first one to want it raises `drain`, the others see it at their next
  // yield.
  STARLING_HOST_DEVICE void quit(LeaveReason why) {
    if (d_.parked != nullptr) m_.store_relaxed(&b_.urgent, 0);
    if (why == LeaveReason::kElsewhere || why == LeaveReason::kReleased) return;
    // Release: pairs with the acquires of `drain` in decide() and pass(). Who was dismissed tells the others.
    // Before the news: who is launched for that does not take part in what ends (DaemonBlock::take_part).
    if (why != LeaveReason::kDrained || a_.tenured != 0) m_.store_release(&d_.drain, number());
    if (a_.tenured != 0) m_.fence();  // what is parked meanwhile is seen here, or by whom it brings
    // Release: what we leave, before the news; pairs with the host's exchange. What is parked from now on,
    // start kernels announce themselves.
    if (d_.work != nullptr && leaves_work(m_, d_, m_.block_index())) m_.store_release(d_.work, 1);
    if (why == LeaveReason::kIdle)
      ++b_.counters.quits_idle;
    else if (why == LeaveReason::kDrained)
      ++b_.counters.quits_drained;
    else
      ++b_.counters.quits_stuck;
    trace(m_, b_.trace, TraceEvent::kQuit, ~0u, a_.launch, uint64_t(why));
  }

  // Visits every task once. True if any instruction or operation was finished. A residency that ends amid a
  // pass leaves the cursor where it stopped: short ones would starve those behind the first tasks.
  STARLING_HOST_DEVICE bool pass() {
    bool progressed = false;
    const uint32_t count = s_.task_count;
    uint32_t position = 0;  // how many tasks of this pass were not done: the first ones may wait longer
    for (uint32_t left = count;; --left) {
      if (leads(m_)) select(left);
      m_.barrier();
      left = s_.left;
      if (left == 0) break;
      const uint64_t steps_before = load();
      const Outcome outcome = run_selected(position);
      ActiveSlot& slot = s_.slots[s_.lane % kActiveSlots];
      progressed |= outcome != Outcome::kStuck || slot.context.steps != steps_before;
      const bool drain = m_.any(leads(m_) && (is_drained() || is_released(m_, a_)));
      if (leads(m_)) finish(outcome, steps_before);
      if (outcome == Outcome::kStuck) ++position;
      if (drain) return progressed;
      if (leads(m_) && d_.scheduling.priority_order &&
          has_submissions(m_, d_.submissions, b_.submissions_read))
        s_.task_count = 0;  // a new submission may have priority: sort before going on
      m_.barrier();
      if (s_.task_count == 0) {
        progressed = true;
        break;
      }
    }
    if (leads(m_)) b_.cursor = 0;
    return progressed;
  }

  // Leader only: the next of `left` tasks that can go on, as far as one can see from outside.
  STARLING_HOST_DEVICE void select(uint32_t left) {
    for (;; --left, ++b_.cursor) {
      if (b_.cursor >= b_.task_count) b_.cursor = 0;
      s_.left = left;
      if (left == 0) return;
      if (can_go_on(b_.tasks[b_.cursor])) break;
    }
    const uint32_t id = b_.tasks[b_.cursor].lane;
    const ActiveSlot& slot = s_.slots[id % kActiveSlots];
    const LaneBlock& block = lane_of(id).blocks[m_.block_index()];
    s_.lane = id;
    s_.hit = slot.valid && slot.lane == id && slot.context.sequence == block.next;
  }

  // False only if it certainly cannot: one look, instead of running into the same wait again. No order is
  // needed: whoever runs it looks again, with an acquire.
  STARLING_HOST_DEVICE bool can_go_on(const Task& task) {
    if (task.awaited == nullptr || reached(m_.load_relaxed(task.awaited), task.target)) return true;
    return m_.load_relaxed(lane_of(task.lane).fault) != 0;
  }

  // Between two tiles of the task at hand, and where it waits. Messages that go both ways in two lanes then
  // do so at the same time, instead of one after the other.
  STARLING_HOST_DEVICE bool another_can_go_on() {
    if (d_.scheduling.in_turn) return false;
    for (uint32_t k = 0; k < b_.task_count; ++k)
      if (k != b_.cursor && can_go_on(b_.tasks[k])) return true;
    return false;
  }

  // The task's context into its active slot, by all threads in 16-byte moves; and its plan, where that is far
  // from the threads. Returns its step count.
  STARLING_HOST_DEVICE uint64_t load() {
    ActiveSlot& slot = s_.slots[s_.lane % kActiveSlots];
    if (!s_.hit) {
      Lane& lane = lane_of(s_.lane);
      LaneBlock& block = lane.blocks[m_.block_index()];
      copy_words(&slot.operation, &lane.operations[block.next % M::kLaneDepth], sizeof(Operation));
      if (leads(m_)) {
        ++b_.counters.loads;
        slot.lane = s_.lane;
        slot.near = &lane;
        slot.valid = 1;
        slot.context = block.context;
        if (slot.context.sequence != block.next)
          slot.context = DynamicContext{block.next, 0, 0, 0, 0};
        else
          ++b_.counters.resumes;
      }
      m_.barrier();
      if constexpr (M::kStagesPlans) {
        const PlanHeader* plan = bring_plan_near(m_, s_.lane % kActiveSlots, slot.operation.plan,
                                                 slot.operation.plan->total_bytes);
        Lane* near = m_.stage_lane(s_.lane % kActiveSlots, &lane);
        m_.barrier();
        if (leads(m_)) {
          slot.operation.plan = plan;
          slot.near = near;
        }
        m_.barrier();
      }
    }
    return slot.context.steps;
  }

  STARLING_HOST_DEVICE void copy_words(void* to, const void* from, uint32_t bytes) {
    for (uint32_t w = m_.thread_index(); w < bytes / 16; w += m_.thread_count())
      static_cast<Pack*>(to)[w] = static_cast<const Pack*>(from)[w];
  }

  STARLING_HOST_DEVICE Outcome run_selected(uint32_t position) {
    Lane& lane = lane_of(s_.lane);
    ActiveSlot& slot = s_.slots[s_.lane % kActiveSlots];
    if (passes_turns(lane) && !slot.context.started) {
      if (m_.any(leads(m_) && !may_begin(lane, slot.operation.sequence))) return Outcome::kStuck;
      if (m_.block_index() >= slot.operation.block_count) return Outcome::kDone;
    }
    if (m_.any(leads(m_) && is_broken(lane))) return Outcome::kFault;
    if (leads(m_)) trace(m_, b_.trace, TraceEvent::kRun, s_.lane, slot.context.sequence, slot.context.steps);
    Budget budget = budget_at(position);
    const Execution execution{slot.near,    &slot.operation, &lane.blocks[m_.block_index()], &b_.pool,
                              a_.pool_base, &s_.operands,    near_ends(m_, s_.ends)};
    const auto yields = [this] { return another_can_go_on(); };
    Interpreter<M, decltype(yields)> interpreter(m_, execution, budget, yields);
    DynamicContext context = slot.context;
    const uint64_t steps_before = context.steps;
    const Outcome outcome = interpreter.run(context);
    m_.barrier();  // nobody reads the slot's context any more
    if (leads(m_)) {
      s_.operands.clear();  // no dead bytes: equal states look equal to the explorer
      b_.counters.instructions += context.steps - steps_before;
      slot.context = context;
      if (outcome == Outcome::kStuck) {
        const Awaited awaited = interpreter.awaits(context);
        if (!d_.scheduling.in_turn) {
          b_.tasks[b_.cursor].awaited = awaited.word;
          b_.tasks[b_.cursor].target = awaited.target;
        }
        trace(m_, b_.trace, TraceEvent::kPark, s_.lane, context.sequence,
              uint64_t(context.instruction) << 32 | awaited.peer);
      }
    }
    m_.barrier();
    return outcome;
  }

  // One look, no budget: what it waits for is another operation, or a stream. Once begun, an operation is
  // ours to its end. Of a broken lane too the operations go in their order, so that each part has one owner.
  STARLING_HOST_DEVICE bool may_begin(const Lane& lane, uint64_t sequence) {
    if (!has_turn(m_, *lane.handover, m_.block_index(), sequence)) return false;
    if (!((lane.handover->turns[m_.block_index()].marked >> (sequence % 64)) & 1)) return true;
    // Acquire: pairs with the stream's write; after it the operation's input is there.
    if (reached(m_.load_acquire(lane.handover->ready), sequence + 1)) return true;
    return m_.load_relaxed(lane.fault) != 0;  // it will be dropped, and touches no buffer
  }

  // The front task waits longest; later ones less (DFCCL Alg. 1, line 3).
  STARLING_HOST_DEVICE Budget budget_at(uint32_t position) const {
    const Scheduling& p = d_.scheduling;
    const uint32_t shift = position * p.position_shift;
    uint64_t ticks = shift < 63 ? p.initial_budget >> shift : 0;
    if (ticks < p.minimum_budget) ticks = p.minimum_budget;
    uint64_t most = p.maximum_budget;
    // Others may be able to go on, and one look tells: no reason to be patient with this one.
    if (!p.in_turn && b_.task_count > 1) most = ticks = p.initial_budget / kCrowdedShare;
    return {ticks, most, p.success_factor, uint16_t(p.unbounded)};
  }

  // Leader only: the task is done with this turn.
  STARLING_HOST_DEVICE void finish(Outcome outcome, uint64_t steps_before) {
    Lane& lane = lane_of(s_.lane);
    LaneBlock& block = lane.blocks[m_.block_index()];
    ActiveSlot& slot = s_.slots[s_.lane % kActiveSlots];
    const int32_t priority = b_.tasks[b_.cursor].priority;
    if (outcome == Outcome::kStuck ? slot.context.steps != steps_before : block.pending != 0)
      raise_urgent(priority);
    if (outcome == Outcome::kStuck) {
      ++b_.counters.parks;
      ++b_.cursor;
      // Lazy saving: a context that did not move is in memory already (DFCCL §5).
      // One that has not begun needs no saving, and its part may be another's.
      if (slot.context.started &&
          (slot.context.steps != steps_before || slot.context.started != block.context.started ||
           slot.context.sequence != block.context.sequence)) {
        block.context = slot.context;
        ++b_.counters.saves;
      }
      return;
    }
    slot.valid = 0;
    const uint64_t sequence = block.next;
    const uint64_t now = b_.trace.capacity != 0 ? m_.now() : 0;  // of both events, which are one moment
    trace_at(m_, b_.trace, now, outcome == Outcome::kFault ? TraceEvent::kFault : TraceEvent::kComplete,
             s_.lane, sequence, 0);
    ++b_.counters.completions;
    block.pending &= ~(uint64_t(1) << (sequence % 64));
    advance(block);
    const bool turns = passes_turns(lane);
    // Captured operations are told of in their order, though their hosts do not keep their places apart: who
    // takes the turn comes behind the flags. Their lane stays until this residency is over.
    const bool captured = turns && lane.handover->begun != nullptr;
    if (turns) lane.handover->turns[m_.block_index()].marked &= ~(uint64_t(1) << (sequence % 64));
    if (turns && !captured) hand_on(m_, *lane.handover, m_.block_index(), sequence);
    complete(lane, slot.operation, now);
    if (captured) hand_on(m_, *lane.handover, m_.block_index(), sequence);
    remove_task(b_, b_.cursor);
    if (block.pending != 0) insert_task(b_, {s_.lane, priority, b_.arrivals++}, d_.scheduling.priority_order);
  }

  STARLING_HOST_DEVICE void raise_urgent(int32_t priority) {
    const uint64_t urgent = uint64_t(int64_t(kUrgentBase) + priority);
    if (urgent > urgent_) urgent_ = urgent;
  }

  STARLING_HOST_DEVICE static void advance(LaneBlock& block) {
    if (block.pending == 0) {
      block.next = block.fetched;
      return;
    }
    do ++block.next;
    while (!((block.pending >> (block.next % 64)) & 1));
  }

  STARLING_HOST_DEVICE void complete(Lane& lane, const Operation& operation, uint64_t now) {
    const uint64_t sequence = operation.sequence;
    const uint64_t token = operation.token;
    if (!count_finished(m_, lane, lane.handover, Ending::of(operation))) return;
    // Our other blocks may sleep before the lane's next operation, if that fences.
    if (d_.block_count > 1) m_.notify(lane.doorbell);
    trace_at(m_, b_.trace, now, TraceEvent::kPublish, lane.id, sequence, 0);
    if (token != 0 && !publish(m_, a_.completion_kind, *a_.completions, token, m_.block_index()))
      b_.unpublished[b_.unpublished_count++] = token;
    m_.notify_host();
  }

  STARLING_HOST_DEVICE void flush_unpublished() {
    if (b_.unpublished_count == 0) return;
    uint32_t kept = 0;
    for (uint32_t k = 0; k < b_.unpublished_count; ++k)
      if (!publish(m_, a_.completion_kind, *a_.completions, b_.unpublished[k], m_.block_index()))
        b_.unpublished[kept++] = b_.unpublished[k];
    b_.unpublished_count = kept;
    m_.notify_host();
  }

  STARLING_HOST_DEVICE Lane& lane_of(uint32_t id) const {
    return *d_.segments[id / kLaneSegment][id % kLaneSegment];
  }

  M& m_;
  const DaemonArguments& a_;
  DaemonMemory& d_;
  BlockState& s_;
  BlockMemory& b_;
  const Visit visit_;
  uint64_t last_progress_ = 0;
  uint64_t urgent_ = 0;  // of the pass under way; BlockMemory::urgent
  bool ran_ = false;  // a pass has begun
};

}  // namespace starling::device
