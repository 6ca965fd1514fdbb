"""The planted bugs: each one an edit of a header of src/device, as small as the slip that would make it.

long: a table.
"""

from __future__ import annotations

from planted import Mutation

CONNECTOR = "connector.h"
INTERPRETER = "interpreter.h"
OPERANDS = "operands.h"
PACKETS = "packets.h"
DAEMON = "daemon.h"
DAEMON_BLOCK = "daemon_block.h"
HANDOVER = "handover.h"
START = "start.h"
BOUND = "bound.h"
BIND = "bind.h"
WAIT = "wait.h"
GATE = "gate.h"
HOST = "stream_host.h"
SQ = "submission_queue.h"
CQ = "completion_queue.h"
WITHDRAWAL = "withdrawal.h"
OPENED = "opened.h"
CARRYING = "carrying.h"

MUTATIONS = [
    # ---- orders of stores ------------------------------------------------------------------------------
    Mutation(
        "posted_relaxed",
        "relaxed for release: the message's counter",
        CONNECTOR,
        "m.store_release(&end.inbox->posted, end.sent);",
        "m.store_relaxed(&end.inbox->posted, end.sent);",
    ),
    Mutation(
        "posted_read_relaxed",
        "relaxed for acquire: the reader of a message's counter",
        CONNECTOR,
        "m.load_acquire(&end.inbox->posted)",
        "m.load_relaxed(&end.inbox->posted)",
    ),
    Mutation(
        "granted_relaxed",
        "relaxed for release: the counter of credits",
        CONNECTOR,
        "m.store_release(&end.credit->granted, end.granted);",
        "m.store_relaxed(&end.credit->granted, end.granted);",
    ),
    Mutation(
        "granted_read_relaxed",
        "relaxed for acquire: the reader of the credits",
        CONNECTOR,
        "m.load_acquire(&end.credit->granted)",
        "m.load_relaxed(&end.credit->granted)",
    ),
    Mutation(
        "submission_entry_relaxed",
        "relaxed for release: the submission queue's entry",
        SQ,
        "m.store_release(&ring.entries[tail & (ring.capacity - 1)], entry);",
        "m.store_relaxed(&ring.entries[tail & (ring.capacity - 1)], entry);",
    ),
    Mutation(
        "submission_read_relaxed",
        "relaxed for acquire: the block that reads a submission",
        SQ,
        "const uint64_t entry = m.load_acquire(",
        "const uint64_t entry = m.load_relaxed(",
    ),
    Mutation(
        "completion_entry_relaxed",
        "relaxed for release: the entry that says that an operation is complete",
        CQ,
        "m.store_release(&q.entries[tail & (q.capacity - 1)], lap_of(tail, q.capacity) | token);",
        "m.store_relaxed(&q.entries[tail & (q.capacity - 1)], lap_of(tail, q.capacity) | token);",
    ),
    Mutation(
        "completion_tail_read_relaxed",
        "relaxed for acquire: the poller's look at the vanilla ring",
        CQ,
        "if (m.load_acquire(&q.tail) == head) return false;",
        "if (m.load_relaxed(&q.tail) == head) return false;",
    ),
    # ---- connectors ------------------------------------------------------------------------------------
    Mutation(
        "no_credit_wait",
        "a message is written without waiting for credit",
        CONNECTOR,
        "  end.granted_seen = m.load_acquire(&end.credit->granted);\n  return end.sent < end.granted_seen;",
        "  end.granted_seen = m.load_acquire(&end.credit->granted);\n  return true;",
    ),
    Mutation(
        "receive_one_early",
        "off by one: a message is read one too early",
        CONNECTOR,
        "return end.received < end.posted_seen;",
        "return end.received <= end.posted_seen;",
    ),
    Mutation(
        "posted_before_counting",
        "the counter is announced before it counts the message: the last message is never seen",
        CONNECTOR,
        "  ++end.sent;\n",
        "  const uint64_t sent = end.sent++;\n"
        "  m.store_release(&end.inbox->posted, sent);\n  if (end.sent % 7) return;\n",
    ),
    Mutation(
        "grant_before_entry",
        "the credit is counted before its entry names the slot",
        CONNECTOR,
        "  end.credit->grants[end.granted % kMaxCredits] = slot;\n  ++end.granted;\n",
        "  m.store_release(&end.credit->granted, end.granted + 1);\n"
        "  end.credit->grants[end.granted % kMaxCredits] = slot;\n  ++end.granted;\n",
    ),
    Mutation(
        "pool_slot_lost",
        "a borrowed slot is not given back to the pool",
        CONNECTOR,
        "    pool.free[pool.free_count++] = slot;",
        "    (void)pool;",
    ),
    Mutation(
        "pool_slot_kept",
        "a borrowed slot is granted again although no message is expected",
        CONNECTOR,
        "if (slot < kPoolSlot || end.granted < end.expected)",
        "if (slot < kPoolSlot || end.granted <= end.expected)",
    ),
    Mutation(
        "too_many_credits",
        "more credits than the table of grants has entries",
        CONNECTOR,
        "end.granted - end.received < kMaxCredits",
        "end.granted - end.received <= kMaxCredits",
    ),
    Mutation(
        "credit_before_reading",
        "the slot is granted again before all threads have read it",
        INTERPRETER,
        "        if (!move()) return false;\n"
        "        if (i.chunks > 1) combine_others(i, piece.k + 1, c.tile);\n"
        "        m_.barrier();  // all threads have read the messages and written theirs\n"
        "        if (leads(m_)) signal(i);",
        "        const Combine moved = *x_.operands;\n"
        "        if (leads(m_) && receives(i.opcode))\n"
        "          for (uint32_t k = 0; k < i.receive_count; ++k)\n"
        "            consume(m_, *x_.lane, receive_end(i, k), *x_.pool);\n"
        "        combine(m_, moved);\n        m_.barrier();\n"
        "        if (leads(m_) && sends(i.opcode))\n"
        "          for (uint32_t k = 0; k < i.send_count; ++k) post(m_, send_end(i, k));",
    ),
    # ---- packets -----------------------------------------------------------------------------------------
    Mutation(
        "packets_without_vote",
        "packets are used although not all have come: the vote is not heeded",
        INTERPRETER,
        "      if (m_.any(stuck)) return false;\n    }\n",
        "      (void)m_.any(stuck);\n    }\n",
    ),
    Mutation(
        "stale_flag_accepted",
        "any flag will do: an older message's data is taken for this one's",
        PACKETS,
        "    return uint32_t(a >> 32) == flag && uint32_t(b >> 32) == flag",
        "    return a >> 32 != 0 && uint32_t(b >> 32) == flag",
    ),
    Mutation(
        "one_flag_of_two",
        "only the first word of a pack is looked at: the second comes late",
        PACKETS,
        " && uint32_t(d >> 32) == flag &&\n           uint32_t(e >> 32) == flag;",
        " && uint32_t(d >> 32) == flag;",
    ),
    Mutation(
        "packet_credit_too_large",
        "one packet message more than there are slots: a slot is written before it was read",
        PACKETS,
        "m.load_acquire(&end.credit->packets_read) + kPacketSlots;",
        "m.load_acquire(&end.credit->packets_read) + kPacketSlots + 1;",
    ),
    Mutation(
        "packet_credit_before_reading",
        "the packet slot is given back before its values were used",
        INTERPRETER,
        "    combine_packets(m_, c);\n"
        "    m_.barrier();  // all threads have loaded the messages and stored theirs\n"
        "    count_read(i);\n",
        "    count_read(i);\n    combine_packets(m_, c);\n    m_.barrier();\n",
    ),
    Mutation(
        "kept_packets_without_vote",
        "the values that threads keep are used although not all have come",
        INTERPRETER,
        "      if (m_.any(stuck)) return false;\n      count_read(i);",
        "      (void)m_.any(stuck);\n      count_read(i);",
    ),
    Mutation(
        "kept_packets_read_before_vote",
        "the leader gives the packet slot back when its own unit has come, and other threads still look",
        INTERPRETER,
        "      if (m_.any(stuck)) return false;\n"
        "      count_read(i);  // all threads have loaded the messages: the vote was a barrier\n",
        "      if (!stuck) count_read(i);\n      if (m_.any(stuck)) return false;\n",
    ),
    Mutation(
        "one_kept_flag_of_several",
        "of several peers' packets only the last one's flags are heeded",
        PACKETS,
        "      there = there && seen[k].has(c.source_flags[first + k]);\n",
        "      there = seen[k].has(c.source_flags[first + k]);\n",
    ),
    Mutation(
        "ends_not_returned",
        "a block that leaves an operation stuck forgets what it counted at its connectors",
        INTERPRETER,
        "        return_ends(m_, ends_);\n",
        "        if (outcome == Outcome::kDone) return_ends(m_, ends_);\n",
    ),
    Mutation(
        "ends_returned_early",
        "the connector ends are written back while the leader counts at them",
        INTERPRETER,
        "        m_.barrier();  // the last counting is done\n",
        "",
    ),
    Mutation(
        "ends_brought_before_the_fence",
        "the connector ends are copied while another block may still work on them",
        INTERPRETER,
        "    if (begins && !pass_fence()) return Outcome::kStuck;\n"
        "    const bool broken = begins && is_broken();\n"
        "    if constexpr (M::kStagesPlans) {\n"
        "      ends_.brought = ends_.fit();\n"
        "      if (ends_.brought) bring_ends(m_, ends_);\n"
        "    }\n",
        "    if constexpr (M::kStagesPlans) {\n"
        "      ends_.brought = ends_.fit();\n"
        "      if (ends_.brought) bring_ends(m_, ends_);\n"
        "    }\n"
        "    if (begins && !pass_fence()) return Outcome::kStuck;\n"
        "    const bool broken = begins && is_broken();\n",
    ),
    # ---- pulls -------------------------------------------------------------------------------------------
    Mutation(
        "readers_not_waited_for",
        "an operation is complete while a peer still reads its buffers",
        INTERPRETER,
        "if (protocol_ == Protocol::kPull && !wait_for_readers())",
        "if (false && !wait_for_readers())",
    ),
    Mutation(
        "offers_the_source",
        "a sum's message names the input",
        OPERANDS,
        "slice = written_ ? destination() : source();",
        "slice = source();",
    ),
    Mutation(
        "input_not_bounced",
        "a message names memory to which nobody has copied the slice",
        INTERPRETER,
        "protocol_ == Protocol::kPull && !is_bounced<M>(op_, i))",
        "protocol_ == Protocol::kPull)",
    ),
    Mutation(
        "sum_not_bounced",
        "what an instruction writes and offers is not copied to where peers can open it",
        OPERANDS,
        "? i.send_count : is_bounced<M>(op_, i);",
        "? i.send_count : is_bounced<M>(op_, i) && i.opcode == Opcode::send;",
    ),
    Mutation(
        "opened_not_waited_for",
        "a slice is read before our host has opened the buffer that it lies in",
        INTERPRETER,
        "return is_opened(m_, *end.opened, next_message(m_, x_, end).high);",
        "return true;",
    ),
    Mutation(
        "opened_awaited_too_far",
        "who waits for a buffer to be opened is never looked at again",
        INTERPRETER,
        "next_message(m_, x_, end).high].made, 1,",
        "next_message(m_, x_, end).high].made, 2,",
    ),
    Mutation(
        "opened_copied_relaxed",
        "relaxed for release: where a peer's buffer is, to other blocks",
        OPENED,
        "m.store_release(&known.made, 1);",
        "m.store_relaxed(&known.made, 1);",
    ),
    Mutation(
        "given_back_while_read",
        "a broken lane gives buffers back while a peer reads them",
        WITHDRAWAL,
        "return m.load_acquire(out) != 0;",
        "return true;",
    ),
    Mutation(
        "withdrawn_while_reading",
        "a rank says that it reads no more while its blocks are at it",
        WITHDRAWAL,
        "if (on_device != 0) return false;",
        "if (false) return false;",
    ),
    Mutation(
        "withdrawn_relaxed",
        "relaxed for release: a rank's word that it reads no more",
        WITHDRAWAL,
        "m.store_release(out, 1);",
        "m.store_relaxed(out, 1);",
    ),
    Mutation(
        "withdrawn_read_relaxed",
        "relaxed for acquire: the look at that word",
        WITHDRAWAL,
        "return m.load_acquire(out) != 0;",
        "return m.load_relaxed(out) != 0;",
    ),
    Mutation(
        "awaits_what_nobody_sends",
        "who leaves the block before a tile that has no bytes for it is told to wait for messages",
        INTERPRETER,
        "    if (moves_nothing(i, c.tile)) return {};\n",
        "",
    ),
    Mutation(
        "turn_repeats_tile",
        "who leaves the block to another between two tiles does the first one again",
        INTERPRETER,
        "          ++c.tile;\n          return Outcome::kStuck;",
        "          return Outcome::kStuck;",
    ),
    # ---- the interpreter -------------------------------------------------------------------------------
    Mutation(
        "no_barrier_before_signal",
        "the leader signals before the other threads have written",
        INTERPRETER,
        "        m_.barrier();  // all threads have read the messages and written theirs\n",
        "",
    ),
    Mutation(
        "waits_for_receives_only",
        "side effect before all waits: only the received messages are waited for",
        INTERPRETER,
        "    const uint32_t count = before_sends + (sends(i.opcode) ? i.send_count : 0);",
        "    const uint32_t count = before_sends + (sends(i.opcode) && received == 0 ? i.send_count : 0);",
    ),
    Mutation(
        "waits_for_first_of_fan_in",
        "of several received messages only the first is waited for",
        INTERPRETER,
        "    const uint32_t received = receives(i.opcode) ? i.receive_count : 0;\n"
        "    const uint32_t before_sends",
        "    const uint32_t received = receives(i.opcode) ? 1 : 0;\n    const uint32_t before_sends",
    ),
    Mutation(
        "unbounded_wait",
        "a wait without bound: yielding is lost",
        WAIT,
        "const bool ended = budget.unbounded ? false : m.expired(start, budget.ticks);",
        "const bool ended = false && m.expired(start, budget.ticks);",
    ),
    Mutation(
        "instruction_not_reset",
        "the next tile begins where the last one ended",
        INTERPRETER,
        "      c.instruction = 0;\n",
        "      c.instruction = block_.instruction_count > 2;\n",
    ),
    Mutation(
        "stuck_counts_as_done",
        "an instruction that is parked counts as executed: skipped at resume",
        INTERPRETER,
        "c)) return Outcome::kStuck;\n        ++c.steps;",
        "c)) return ++c.instruction, Outcome::kStuck;\n        ++c.steps;",
    ),
    Mutation(
        "looks_behind_fence",
        "who waits at the fence looks at ends that are another block's still, which keep what it saw",
        INTERPRETER,
        "    if (!c.started) return {};\n",
        "",
    ),
    Mutation(
        "fence_reads_the_ring",
        "the fence compares with the place in the ring, where a later operation may stand by now",
        INTERPRETER,
        "return !leads(m_) || int64_t(m_.load_acquire(&x_.lane->finished[previous]) - op_.previous_target) >= 0;",
        "return m_.load_acquire(&x_.lane->finished[previous]) == x_.lane->operations[previous].finished_target;",
    ),
    Mutation(
        "expects_too_few",
        "connectors are told to expect the messages of one tile only: credit that comes late is never missed, "
        "but counts of borrowed slots drift",
        INTERPRETER,
        "end.expected = end.received;",
        "end.expected += end.received ? 1 : 0;",
    ),
    # ---- the daemon ------------------------------------------------------------------------------------
    Mutation(
        "context_not_saved",
        "lazy saving is too lazy: a context that progressed is not saved",
        DAEMON,
        "(slot.context.steps != steps_before || slot.context.started",
        "(slot.context.started",
    ),
    Mutation(
        "context_saved_before_the_counter",
        "the context is saved as it was before the run",
        DAEMON,
        "        block.context = slot.context;\n        ++b_.counters.saves;",
        "        const DynamicContext newer = slot.context;\n"
        "        block.context = newer;\n"
        "        if (newer.instruction > 0) --block.context.instruction;\n        ++b_.counters.saves;",
    ),
    Mutation(
        "wrong_lane_in_slot",
        "an active slot is taken for the lane that asks: another lane's context and connectors",
        DAEMON,
        "s_.hit = slot.valid && slot.lane == id && slot.context.sequence == block.next;",
        "s_.hit = slot.valid && slot.context.sequence == block.next;",
    ),
    Mutation(
        "blocks_quit_singly",
        "a block leaves without raising drain: the others stay",
        DAEMON,
        "if (why != LeaveReason::kDrained) m_.store_release(&d_.drain, a_.launch);",
        "",
    ),
    Mutation(
        "never_quits_stuck",
        "the daemon stays while it has tasks: a device synchronization waits for ever",
        DAEMON,
        "if (fruitless > 0 && nobody_progresses(d_.scheduling.quit_period))",
        "if (fruitless > 0 && b_.task_count == 0 && nobody_progresses(d_.scheduling.quit_period))",
    ),
    Mutation(
        "starts_from_the_front",
        "every residency begins with the same first tasks: those behind them starve",
        DAEMON,
        "if (drain) return progressed;",
        "if (drain) break;",
    ),
    Mutation(
        "visits_the_front_only",
        "FIFO that starves: only the first task of the queue is visited",
        DAEMON,
        "const uint32_t count = s_.task_count;",
        "const uint32_t count = s_.task_count > 0;",
    ),
    Mutation(
        "completion_dropped",
        "a completion that finds the queue full is forgotten",
        DAEMON,
        "      b_.unpublished[b_.unpublished_count++] = token;",
        "      (void)token;",
    ),
    Mutation(
        "completion_by_every_block",
        "every block that finishes publishes the operation",
        HANDOVER,
        "return m.fetch_add(finished, parts) + parts == operation.finished_target;",
        "return m.fetch_add(finished, parts) + parts <= operation.finished_target;",
    ),
    Mutation(
        "completion_before_data",
        "the operation counts as finished when its last run begins",
        DAEMON,
        "    const Outcome outcome = interpreter.run(context);\n",
        "    if (leads(m_) && context.steps == 0 && slot.operation.block_count == 1 &&\n"
        "        lane.operations[slot.operation.sequence % M::kLaneDepth].sequence == slot.operation.sequence &&\n"
        "        !context.started)\n"
        "      publish(m_, a_.completion_kind, *a_.completions, slot.operation.token, m_.block_index());\n"
        "    const Outcome outcome = interpreter.run(context);\n",
    ),
    Mutation(
        "submission_lost_at_quit",
        "quit with a submission in flight: what is read while drain is up is forgotten",
        DAEMON,
        "      ++count;\n      accept(submission);",
        "      ++count;\n      if (m_.load_acquire(&d_.drain) < a_.launch) accept(submission);",
    ),
    Mutation(
        "lane_queued_twice",
        "a second operation of a lane makes a second task",
        DAEMON,
        "    if (queued) {\n",
        "    if (false) {\n",
    ),
    Mutation(
        "sequence_skipped",
        "the lane goes on with the newest operation instead of the next one",
        DAEMON,
        "    do ++block.next;\n    while (!((block.pending >> (block.next % 64)) & 1));",
        "    block.next = block.fetched - 1;",
    ),
    Mutation(
        "fault_ignored",
        "a broken lane's operations are kept: their completion never comes",
        DAEMON,
        "if (m_.any(leads(m_) && is_broken(lane))) return Outcome::kFault;",
        "",
    ),
    Mutation(
        "begun_behind_dropped",
        "an operation begins although the one before it was dropped with messages in its connectors",
        INTERPRETER,
        "return m_.thread_index() + 1 == m_.thread_count() && m_.load_relaxed(x_.lane->fault) != 0;",
        "return false;",
    ),
    Mutation(
        "others_passed_unseen",
        "block 0 hands on the parts without a block although their turn has not come",
        START,
        "others_wait_ = m_.any(missed);",
        "(void)m_.any(missed);",
    ),
    Mutation(
        "others_not_counted",
        "the parts without a block are handed on and not counted where block 0 parks: the operation never ends",
        START,
        "    if (passed != 0) count_finished(m_, *lane_, lane_->handover, Ending::of(*op_), passed);\n",
        "    (void)passed;\n",
    ),
    Mutation(
        "bound_without_barrier",
        "threads move data before all operands are bound",
        INTERPRETER,
        "          bind_operands(m_, x_, ends_, i, piece);\n          m_.barrier();  // all see them\n",
        "          bind_operands(m_, x_, ends_, i, piece);\n",
    ),
    Mutation(
        "counted_by_all",
        "every thread counts a packet message as read, not one for each connection",
        INTERPRETER,
        "    for (uint32_t k = m_.thread_index(); k < i.receive_count; k += m_.thread_count())\n"
        "      packets_were_read(m_, receive_end(i, k));",
        "    for (uint32_t k = 0; k < i.receive_count; ++k)\n      packets_were_read(m_, receive_end(i, k));",
    ),
    Mutation(
        "waits_before_counting",
        "threads look at the ends while the leader still counts the instruction before",
        INTERPRETER,
        "    m_.barrier();  // the ends count the instruction before\n",
        "",
    ),
    Mutation(
        "all_parts_taken_for_granted",
        "block 0 publishes the operation when it is through, whoever else is not",
        HANDOVER,
        "handover != nullptr && parts == handover->width",
        "handover != nullptr && parts > 1",
    ),
    Mutation(
        "bound_to_one_message",
        "operands that are bound ahead count no message of the instructions before",
        OPERANDS,
        "return ends_.send(connection).packets_sent + earlier_.sent(connection);",
        "return ends_.send(connection).packets_sent;",
    ),
    Mutation(
        "bound_ahead_unready",
        "operands are bound ahead although a peer is not connected, or gave no credit",
        INTERPRETER,
        "      ready &= binding.ready(thread % members, members);\n",
        "",
    ),
    Mutation(
        "bound_ahead_of_dependencies",
        "operands are bound ahead of what other blocks have to do first",
        INTERPRETER,
        "i.opcode != Opcode::nop && i.dependency_count == 0 && piece",
        "i.opcode != Opcode::nop && piece",
    ),
    Mutation(
        "credit_unseen_by_binding",
        "operands are bound before what other threads have learned of credit is there to see",
        INTERPRETER,
        "      look_for_credit(m_, *x_.lane, send_end(k), all.sent(k));\n    m_.barrier();\n",
        "      look_for_credit(m_, *x_.lane, send_end(k), all.sent(k));\n",
    ),
    Mutation(
        "idle_taken_for_exit",
        "a daemon that is idle says that it was told to exit",
        DAEMON,
        "if (b_.task_count == 0 && m_.load_relaxed(&d_.exited)) return reason(LeaveReason::kExit);",
        "if (b_.task_count == 0) return reason(LeaveReason::kExit);",
    ),
    # ---- the queues ------------------------------------------------------------------------------------
    Mutation(
        "submission_room_of_one_block",
        "the submission queue asks only the first block whether an entry is free",
        SQ,
        "for (uint32_t b = 0; b < block_count; ++b) {",
        "for (uint32_t b = 0; b < block_count && b < 1; ++b) {",
    ),
    Mutation(
        "submission_of_last_lap",
        "a block takes the submission of the lap before",
        SQ,
        "if ((entry ^ submission_lap(position, ring.capacity)) >> 56) return false;",
        "if (entry == 0) return false;",
    ),
    Mutation(
        "submission_freed_before_read",
        "a block frees the submission's entry before it has read it",
        SQ,
        "  const uint64_t entry = m.load_acquire(",
        "  if (!has_submissions(m, ring, position)) return false;\n"
        "  m.store_release(&ring.heads[block * SubmissionRing::kHeadStride], position + 1);\n"
        "  const uint64_t entry = m.load_acquire(",
    ),
    Mutation(
        "completion_ring_without_lock",
        "the vanilla completion ring without its lock",
        CQ,
        "if (m.compare_exchange(&q.lock, 0, 1) != 0) return false;",
        "",
    ),
    Mutation(
        "completion_room_ignored",
        "the packed completion ring overwrites what the poller has not read",
        CQ,
        "    if (!has_room(m, q, tail)) return false;\n",
        "",
    ),
    Mutation(
        "completion_claimed_by_two",
        "two blocks take the same place of the packed ring",
        CQ,
        "    if (m.compare_exchange(&q.tail, tail, tail + 1) != tail) return false;\n",
        "    m.store_release(&q.tail, tail + 1);\n",
    ),
    Mutation(
        "completion_slot_overwritten",
        "the slot queue writes without looking",
        CQ,
        "if (m.load_relaxed(slot) == 0 && m.compare_exchange(slot, 0, token) == 0) return true;",
        "m.store_release(slot, token);\n      return true;",
    ),
    # ---- looking before running ------------------------------------------------------------------------
    Mutation(
        "parked_receive_wakes_late",
        "off by one: a parked receive is not tried before one message more is there",
        INTERPRETER,
        "return {&end.inbox->posted, end.received + 1, end.peer};",
        "return {&end.inbox->posted, end.received + 2, end.peer};",
    ),
    Mutation(
        "parked_task_deaf_to_faults",
        "a parked task never hears that its lane broke",
        DAEMON,
        "return m_.load_relaxed(lane_of(task.lane).fault) != 0;",
        "return false;",
    ),
    Mutation(
        "parked_target_not_cyclic",
        "what a parked task waits for is compared without regard to the wrap",
        DAEMON,
        "reached(m_.load_relaxed(task.awaited), task.target)",
        "(uint32_t(m_.load_relaxed(task.awaited)) >= uint32_t(task.target))",
    ),
    # ---- operations on streams -------------------------------------------------------------------------
    Mutation(
        "turn_ignored",
        "a start kernel runs although an earlier operation of its lane is parked",
        START,
        "const bool ours = has_turn(m_, a_.handover, k == 0 ? m_.block_index() : other(k - 1), op_->sequence);",
        "const bool ours = true;",
    ),
    Mutation(
        "context_not_parked",
        "a start kernel parks without saving where it stopped",
        START,
        "    block.context = context;\n    park();",
        "    park();",
    ),
    Mutation(
        "no_gate",
        "the stream of an operation that is waited for at birth is not held",
        START,
        "    if (a_.gate != 0) s_.stays = becomes_gate();\n",
        "",
    ),
    Mutation(
        "gate_opens_early",
        "the gate opens with the operation before",
        START,
        "!reached(m_.load_acquire(done), op_->sequence + 1)",
        "!reached(m_.load_acquire(done), op_->sequence)",
    ),
    Mutation(
        "plan_of_fast_memory",
        "a block that parks stores its operation with its own copy of the plan before it puts the right one there",
        START,
        "    m_.store_relaxed(&to[0], uint64_t(a_.operation.plan));\n",
        "    m_.store_relaxed(&to[0], from[0]);\n    m_.store_relaxed(&to[0], uint64_t(a_.operation.plan));\n",
    ),
    Mutation(
        "own_plan_parked",
        "a block that parks leaves the operation's plan as it has it, a copy in its own fast memory",
        START,
        "    m_.store_relaxed(&to[0], uint64_t(a_.operation.plan));\n",
        "    m_.store_relaxed(&to[0], from[0]);\n",
    ),
    Mutation(
        "told_relaxed",
        "relaxed for release: the word that tells the host of an operation that began as a kernel",
        HANDOVER,
        "    m.store_release(first + 1, value);",
        "    m.store_relaxed(first + 1, value);",
    ),
    Mutation(
        "told_read_relaxed",
        "relaxed for acquire: the host's look at that word",
        HANDOVER,
        "m.load_acquire(&handover.done[sequence % handover.depth].told)",
        "m.load_relaxed(&handover.done[sequence % handover.depth].told)",
    ),
    Mutation(
        "told_by_queue_too",
        "the daemon tells of an operation that began as a kernel by the completion queue as well",
        DAEMON,
        "if (token != 0 && !publish(",
        "if (!publish(",
    ),
    Mutation(
        "not_told_by_daemon",
        "an operation that began as a kernel and ends in the daemon is not told of",
        HANDOVER,
        "  if (operation.tells_host)",
        "  if (operation.tells_host && lane.submitted == nullptr)",
    ),
    Mutation(
        "turn_relaxed",
        "relaxed for release: the turn that gives a part to the next operation",
        HANDOVER,
        "m.store_release(&handover.turns[part].next, sequence",
        "m.store_relaxed(&handover.turns[part].next, sequence",
    ),
    Mutation(
        "turn_read_relaxed",
        "relaxed for acquire: who takes over a part",
        HANDOVER,
        "m.load_acquire(&handover.turns[part].next)",
        "m.load_relaxed(&handover.turns[part].next)",
    ),
    Mutation(
        "parked_position_relaxed",
        "relaxed for release: the entry that leaves an operation to the daemon",
        HANDOVER,
        "m.store_release(&entry.position, at + 1);",
        "m.store_relaxed(&entry.position, at + 1);",
    ),
    Mutation(
        "park_not_announced",
        "a start kernel parks, and nobody launches a daemon",
        HANDOVER,
        "  m.store_release(daemon.work, 1);\n",
        "",
    ),
    Mutation(
        "done_by_every_block",
        "the flag that streams wait for is set by the first block that finishes",
        HANDOVER,
        "  if (!are_last(m, lane, handover, operation, parts)) return false;\n",
        "  if (handover != nullptr) m.store_release(&handover->done[at].done, sequence + 1);\n"
        "  if (!are_last(m, lane, handover, operation, parts)) return false;\n",
    ),
    Mutation(
        "quit_not_announced",
        "a daemon that leaves tasks behind does not say so",
        DAEMON,
        "    if (d_.work != nullptr && leaves_work()) m_.store_release(d_.work, 1);\n",
        "",
    ),
    Mutation(
        "mark_ignored",
        "an operation starts before its stream has come to it",
        DAEMON,
        "    if (submission.marked) lane.handover->turns[m_.block_index()].marked |= bit;\n",
        "",
    ),
    Mutation(
        "parked_behind_its_successor",
        "an operation that parks after its successor was submitted is forgotten",
        DAEMON,
        "      if (!reached(submission.sequence, block.next)) block.next = submission.sequence;\n",
        "",
    ),
    Mutation(
        "leaves_held_streams",
        "with one hardware queue the daemon leaves while a stream is held",
        DAEMON,
        "if (a_.stays || (d_.scheduling",
        "if ((d_.scheduling",
    ),
    Mutation(
        "queue_before_input",
        "an operation goes through the queue although its stream is not idle",
        HOST,
        "holds_ > 0 && d_.idle(call.stream)) return",
        "holds_ > 0) return",
    ),
    Mutation(
        "held_without_daemon",
        "with one hardware queue a stream is held although no daemon is there",
        HOST,
        "    if (!resident_) launch(true);\n    return !draining_ && !launching_;\n",
        "    return !resident_ || (!draining_ && !launching_);\n",
    ),
    Mutation(
        "drained_while_held",
        "with one hardware queue the daemon is drained while a stream is held",
        HOST,
        "if (!resident_ || (guards() && holds_ > 0)) return;",
        "if (!resident_) return;",
    ),
    Mutation(
        "poison_one_place",
        "a dead peer releases only the streams that wait at one place of the ring",
        HOST,
        "for (uint32_t at = 0; at < handover.depth; ++at)\n      d_.release",
        "for (uint32_t at = 0; at < 1; ++at)\n      d_.release",
    ),
    # ---- daemon first ----------------------------------------------------------------------------------
    Mutation(
        "held_before_daemon",
        "a stream is held where no daemon is, and an earlier operation may need one",
        HOST,
        "bool guards() const { return facts_.shared_queue || facts_.daemon_first; }",
        "bool guards() const { return facts_.shared_queue; }",
    ),
    Mutation(
        "alone_by_holds",
        "solo decided from the wrong count: operations under way that hold no stream do not matter",
        HOST,
        "return under_way_ == 0 || (solo_ && solo_stream_ == call.stream);",
        "return holds_ == 0 || (solo_ && solo_stream_ == call.stream);",
    ),
    Mutation(
        "alone_without_a_place",
        "an operation is let in without a daemon, and starts by a mark, which needs one",
        HOST,
        "if (!call.held || !call.connected || !by_kernel(call)) return false;",
        "if (!call.held || !call.connected) return false;",
    ),
    Mutation(
        "holds_before_the_launch",
        "a stream is held while the daemon that it needs is only asked for",
        HOST,
        "return !draining_ && !launching_;",
        "return !draining_;",
    ),
    Mutation(
        "patient_for_ever",
        "a start kernel that waits at its place is not told that others have come",
        HOST,
        "m_.store_release(facts_.yield, m_.load_relaxed(facts_.yield) + 1);",
        "m_.store_release(facts_.yield, m_.load_relaxed(facts_.yield));",
    ),
    Mutation(
        "patient_after_release",
        "a start kernel waits at its place although its stream was released",
        START,
        "    return !reached(m_.load_relaxed(&lane_->handover->done[op_->sequence % M::kLaneDepth].done),\n"
        "                    op_->sequence + 1);",
        "    return true;",
    ),
    Mutation(
        "introduction_read_relaxed",
        "relaxed for acquire: a sender that learns of its peer's half",
        CONNECTOR,
        "  if (m.load_acquire(&peer.made) == 0) return false;\n  end.inbox",
        "  if (m.load_relaxed(&peer.made) == 0) return false;\n  end.inbox",
    ),
    # ---- operations that come bound -----------------------------------------------------------------------
    Mutation(
        "bound_out_of_turn",
        "a bound operation runs although an earlier operation of its lane is parked",
        START,
        "    ready &= turn == sequence && others_turn == sequence;\n",
        "    ready &= others_turn == sequence;\n",
    ),
    Mutation(
        "bound_before_the_fence",
        "a bound operation uses connections that another block's operation still uses",
        START,
        "is_past_fence(numbered) && run.look(",
        "run.look(",
    ),
    Mutation(
        "bound_fence_relaxed",
        "relaxed for acquire: a bound operation's look whether it is past its fence",
        START,
        "m_.load_acquire(&a_.near.finished[(operation.sequence - 1)",
        "m_.load_relaxed(&a_.near.finished[(operation.sequence - 1)",
    ),
    Mutation(
        "bound_passes_others",
        "a bound operation hands on the parts without a block although their turn has not come",
        START,
        "    ready &= turn == sequence && others_turn == sequence;\n",
        "    ready &= turn == sequence;\n",
    ),
    Mutation(
        "bound_without_credit",
        "a bound operation sends packets into slots that were not read",
        BOUND,
        "    return wanted <= m_.load_before_stores(&lane_.credits[send_place(k)].packets_read) + kPacketSlots;\n",
        "    return wanted != 0;\n",
    ),
    Mutation(
        "bound_behind_the_daemon",
        "what the daemon has handed on is taken as if a kernel of the same stream had",
        START,
        "m_.load_relaxed(&turn.ended)",
        "m_.load_relaxed(&turn.next)",
    ),
    Mutation(
        "bound_first_operand_again",
        "every tile of a bound operation begins with the first tile's operand",
        BOUND,
        "tile == 0 && n == 0))",
        "n == 0))",
    ),
    Mutation(
        "bound_without_vote",
        "threads of a bound operation use what has come although others' units are missing",
        BOUND,
        "      if (m_.any(stuck)) return false;\n",
        "      m_.any(stuck);\n      if (stuck) return false;\n",
    ),
    Mutation(
        "bound_ends_not_counted",
        "a bound operation that waits too long leaves its ends as they were",
        BOUND,
        "    count_ends(done / p_.count, done % p_.count);\n",
        "    if (done == p_.steps()) count_ends(done / p_.count, 0);\n",
    ),
    Mutation(
        "bound_begins_again",
        "a bound operation that waited too long is interpreted from its beginning",
        START,
        "      context.instruction = begun_ % a_.bound.count;\n",
        "      context.instruction = 0;\n",
    ),
    Mutation(
        "bound_parks_without_context",
        "a bound operation that waited too long makes way for a more urgent one, and forgets what it has done",
        START,
        "(s_.urgent == 0 || begun_ != 0)",
        "s_.urgent == 0",
    ),
    Mutation(
        "bound_reads_early",
        "a bound operation gives its packet slots back before all threads have read them",
        BOUND,
        "      if (m_.any(stuck)) return false;\n"
        "      count_read(i, tile);  // all threads have loaded the messages: the vote was a barrier\n",
        "      if (!stuck) count_read(i, tile);\n      if (m_.any(stuck)) return false;\n",
    ),
    Mutation(
        "bound_second_message_first",
        "a bound program takes the second packet of a connection for the first one again",
        BOUND,
        "    return s_.receives[k].messages + tile * p_.received[k] + i.received_before;\n",
        "    return s_.receives[k].messages + tile * p_.received[k];\n",
    ),
    Mutation(
        "bound_tiles_into_one_slot",
        "every tile of a bound operation sends the first tile's messages again",
        BOUND,
        "    return s_.sends[k].messages + tile * p_.sent[k] + i.sent_before;\n",
        "    return s_.sends[k].messages + i.sent_before;\n",
    ),
    Mutation(
        "bound_tile_lost",
        "a bound operation that waited too long in a later tile goes on in the first",
        START,
        "      context.tile = begun_ / a_.bound.count;\n",
        "",
    ),
    Mutation(
        "bound_leads_without_credit",
        "a bound operation sends the next tile's packets into slots that were not read",
        BOUND,
        "      if (leads && tile != 0 && !wait_for_credit(tile)) return (tile - 1) * p_.count + p_.leading;\n",
        "",
    ),
    Mutation(
        "bound_lead_counts",
        "what a bound operation has sent a tile ahead counts as done when it waits too long",
        BOUND,
        "return tile * p_.count + n;\n",
        "return (tile + (p_.leading != 0 && tile + 1 < p_.tile_count)) * p_.count + n;\n",
    ),
    Mutation(
        "bound_chunk_of_block_0",
        "every block of a bound operation writes where block 0 does",
        BIND,
        "      bound.destination_step = uint32_t(destination.step);\n",
        "",
    ),
    # ---- blocks that roam --------------------------------------------------------------------------------
    Mutation(
        "blocks_never_roam",
        "a block that is stuck in a residency that stays keeps its place, which others may wait for",
        DAEMON,
        "return nobody_progresses(d_.parts->roam_after);",
        "return false;",
    ),
    Mutation(
        "blocks_never_leave",
        "blocks roam in vain for ever, and none gives its place back",
        DAEMON_BLOCK,
        "in_vain_ > d_.block_count && own_ != 0",
        "in_vain_ > ~0u && own_ != 0",
    ),
    Mutation(
        "part_of_two_blocks",
        "two blocks claim one part",
        DAEMON_BLOCK,
        "m_.compare_exchange(holder, before, a_.launch) == before) return part;",
        "(m_.store_relaxed(holder, a_.launch), true)) return part;",
    ),
    Mutation(
        "part_given_up_relaxed",
        "relaxed for release: a block gives up a part",
        DAEMON_BLOCK,
        "m_.store_release(&p_.holders[part], 0);",
        "m_.store_relaxed(&p_.holders[part], 0);",
    ),
    Mutation(
        "given_up_parts_stay_open",
        "a residency ends, and what is left to do in parts that blocks gave up is announced by nobody",
        DAEMON_BLOCK,
        "    return m_.load_acquire(&p_.roamed) == a_.launch ? claim(own_) : kNoPart;\n",
        "    return kNoPart;\n",
    ),
    Mutation(
        "last_block_leaves",
        "a block that is the last to serve gives its place back",
        DAEMON_BLOCK,
        "      if (before < 2) return false;\n",
        "",
    ),
    # ---- captured operations -----------------------------------------------------------------------------
    Mutation(
        "block_does_not_count",
        "the second block of a captured operation does not count",
        START,
        "m_.add_relaxed(issued, 1);",
        "m_.add_relaxed(issued, m_.block_index() == 1 ? 0 : 1);",
    ),
    Mutation(
        "gate_of_first_replay",
        "a gate reads an old number, that of the first replay: later ones do not wait",
        START,
        "      m_.store_relaxed(a_.captured, number);",
        "      if (m_.load_relaxed(a_.captured) == 0) m_.store_relaxed(a_.captured, number);",
    ),
    Mutation(
        "target_of_the_capture",
        "a captured operation is complete at the count of the first replay",
        START,
        "    operation.finished_target = finished_before(number) + a_.handover.width;\n",
        "",
    ),
    Mutation(
        "fence_of_the_capture",
        "a captured operation fences until the operation before it in the first replay is complete",
        START,
        "    operation.previous_target = finished_before(number - 1) + a_.handover.width;\n",
        "",
    ),
    Mutation(
        "place_not_awaited",
        "a captured operation takes a place of its lane's ring whose operation is under way",
        START,
        "    await_place(number);\n",
        "",
    ),
    Mutation(
        "captured_gate_relaxed",
        "relaxed for acquire: a gate's look at the flag of its captured operation",
        GATE,
        "m.load_acquire(done)",
        "m.load_relaxed(done)",
    ),
    # ---- what others would slip in ------------------------------------------------------------------------
    Mutation(
        "stuck_reads_no_submissions",
        "a daemon with stuck tasks reads no submissions",
        DAEMON,
        "b_.task_count == 0 || fruitless > 0;",
        "b_.task_count == 0;",
    ),
    Mutation(
        "packets_read_relaxed",
        "relaxed for after-loads: the packets' credit",
        PACKETS,
        "m.store_after_loads(&end.credit->packets_read",
        "m.store_relaxed(&end.credit->packets_read",
    ),
    Mutation(
        "submission_head_relaxed",
        "relaxed for after-loads: the submission queue's head",
        SQ,
        "m.store_after_loads(&ring.heads",
        "m.store_relaxed(&ring.heads",
    ),
    Mutation(
        "completion_head_seen_relaxed",
        "relaxed for release: the completion queue's head, as the poller says it",
        CQ,
        "m.store_release(&q.head_seen, head);",
        "m.store_relaxed(&q.head_seen, head);",
    ),
    Mutation(
        "adopted_mark_kept",
        "the mark of an adopted operation stays",
        DAEMON,
        "lane.handover->turns[m_.block_index()].marked &= ~(uint64_t(1) << (sequence % 64));\n",
        "",
    ),
    Mutation(
        "readers_of_first_only",
        "only the first peer's reading is waited for",
        INTERPRETER,
        "if (!was_read(send_end(k))) return false;",
        "return was_read(send_end(k));",
    ),
    Mutation(
        "completion_slot_freed_relaxed",
        "relaxed for release: the poller frees a completion's slot",
        CQ,
        "      // Release: the place is free; pairs with the exchange in publish().\n      m.store_release(slot, 0);",
        "      m.store_relaxed(slot, 0);",
    ),
    Mutation(
        "stale_context_trusted",
        "an active slot of the lane's last operation is taken for this one's",
        DAEMON,
        "s_.hit = slot.valid && slot.lane == id && slot.context.sequence == block.next;",
        "s_.hit = slot.valid && slot.lane == id;",
    ),
    # ---- what is not seen in one operation alone ---------------------------------------------------------
    Mutation(
        "progress_without_sequence",
        "the counter that other blocks wait on does not say of which operation it counts",
        INTERPRETER,
        "return (op_.sequence << 40) + tile * count + instruction + 1;",
        "return tile * count + instruction + 1;",
    ),
    Mutation(
        "empty_tile_unsaid",
        "an instruction that has no bytes in a tile does not tell who waits for it",
        INTERPRETER,
        "    if ((i.flags & kHasDependents) && leads(m_)) {",
        "    if (piece.range.bytes != 0 && (i.flags & kHasDependents) && leads(m_)) {",
    ),
    Mutation(
        "parked_send_wakes_late",
        "off by one: a parked send is not tried before one credit more is there",
        INTERPRETER,
        "return {&end.credit->granted, end.sent + 1, end.peer};",
        "return {&end.credit->granted, end.sent + 2, end.peer};",
    ),
    Mutation(
        "packets_never_refreshed",
        "no packet message fills its slot to the end: when flags come round again, old ones look new",
        PACKETS,
        "return message % kRefresh < kPacketSlots;",
        "return message > 0 && false;",
    ),
    Mutation(
        "fault_not_heard_in_wait",
        "a wait with a long budget does not hear that the lane broke",
        WAIT,
        "if (ended || (attempt % 64 == 63 && m.load_relaxed(fault) != 0)) return false;",
        "if (ended) return false;",
    ),
    # ---- doorbells ---------------------------------------------------------------------------------------
    Mutation(
        "post_without_notify",
        "nobody rings after a message",
        CONNECTOR,
        "  m.store_release(&end.inbox->posted, end.sent);\n  m.notify(end.doorbell);",
        "  m.store_release(&end.inbox->posted, end.sent);",
    ),
    Mutation(
        "grant_without_notify",
        "nobody rings after a credit",
        CONNECTOR,
        "  m.store_release(&end.credit->granted, end.granted);\n  m.notify(end.doorbell);",
        "  m.store_release(&end.credit->granted, end.granted);",
    ),
    Mutation(
        "progress_without_notify",
        "nobody rings when an instruction that others wait for is done",
        INTERPRETER,
        "      m_.notify(x_.lane->doorbell);\n",
        "",
    ),
    Mutation(
        "packets_sent_without_notify",
        "nobody rings after a packet message",
        PACKETS,
        "  ++end.packets_sent;\n  m.notify(end.doorbell);",
        "  ++end.packets_sent;",
    ),
    Mutation(
        "packets_read_without_notify",
        "nobody rings after a packet message was read",
        PACKETS,
        "  m.store_after_loads(&end.credit->packets_read, end.packets_received);\n  m.notify(end.doorbell);",
        "  m.store_after_loads(&end.credit->packets_read, end.packets_received);",
    ),
    Mutation(
        "ring_before_store",
        "the bell is rung before the message is there",
        CONNECTOR,
        "  m.store_release(&end.inbox->posted, end.sent);\n  m.notify(end.doorbell);",
        "  m.notify(end.doorbell);\n  m.store_release(&end.inbox->posted, end.sent);",
    ),
    Mutation(
        "host_not_notified",
        "nobody rings at the host's door when an operation is complete",
        DAEMON,
        "      b_.unpublished[b_.unpublished_count++] = token;\n    m_.notify_host();",
        "      b_.unpublished[b_.unpublished_count++] = token;",
    ),
    Mutation(
        "host_not_notified_at_flush",
        "nobody rings at the host's door when a completion that found the queue full is published",
        DAEMON,
        "    b_.unpublished_count = kept;\n    m_.notify_host();",
        "    b_.unpublished_count = kept;",
    ),
    Mutation(
        "passed_operation_awaits_turn",
        "an operation whose turn is over waits for it",
        DAEMON,
        "    return passes_turns(lane) &&\n"
        "           reached(sequence, m_.load_relaxed(&lane.handover->turns[m_.block_index()].next));",
        "    return passes_turns(lane);",
    ),
    Mutation(
        "unpublished_left_unsaid",
        "a daemon that leaves completions behind does not say so",
        DAEMON,
        "if (b_.task_count > 0 || b_.unpublished_count > 0) return true;",
        "if (b_.task_count > 0) return true;",
    ),
    # ---- between hosts -----------------------------------------------------------------------------------
    Mutation(
        "departure_read_relaxed",
        "relaxed for acquire: the proxy's look at what a block has posted for another host",
        CARRYING,
        "m.load_acquire(&departures.inbox->posted)",
        "m.load_relaxed(&departures.inbox->posted)",
    ),
    Mutation(
        "departing_grants_read_relaxed",
        "relaxed for acquire: the proxy's look at what a block has granted to another host",
        CARRYING,
        "m.load_acquire(&departures.credit->granted)",
        "m.load_relaxed(&departures.credit->granted)",
    ),
    Mutation(
        "arrival_relaxed",
        "relaxed for release: the counter of a message that came from another host",
        CARRYING,
        "m.store_release(&arrivals.inbox->posted,",
        "m.store_relaxed(&arrivals.inbox->posted,",
    ),
    Mutation(
        "arriving_grants_relaxed",
        "relaxed for release: the counter of credits that came from another host",
        CARRYING,
        "m.store_release(&arrivals.credit->granted, record.granted);",
        "m.store_relaxed(&arrivals.credit->granted, record.granted);",
    ),
    Mutation(
        "grants_told_from_the_last",
        "the proxy tells the credits behind those that are new",
        CARRYING,
        "departures.credit->grants[(carried.granted + k) % kMaxCredits];",
        "departures.credit->grants[(carried.granted_seen + k) % kMaxCredits];",
    ),
    Mutation(
        "measured_after_posting",
        "a message for another host is posted before its length is there",
        INTERPRETER,
        "        measure(send_end(i, k), x_.operands->message_bytes);\n        post(m_, send_end(i, k));",
        "        post(m_, send_end(i, k));\n"
        "        --send_end(i, k).sent;\n"
        "        measure(send_end(i, k), x_.operands->message_bytes);\n"
        "        ++send_end(i, k).sent;",
    ),
    Mutation(
        "carried_not_known",
        "a block does not hear that its messages go to another host: none has a length",
        CONNECTOR,
        "  end.carried = peer.carried;\n",
        "",
    ),
]
