"""Bugs planted in failover: each one an edit of a header of src/link. A bug that other parts make good (a watchdog
behind a message, a probe behind a watchdog) has no row: nothing would show.
"""

from __future__ import annotations

from planted import Mutation

SENDER = "sender.h"
RECEIVER = "receiver.h"
PATH = "path.h"

MUTATIONS = [
    # ---- the sender ------------------------------------------------------------------------------------
    Mutation(
        "resume_where_it_stopped",
        "the new epoch goes on behind what was posted: what was lost is not sent again",
        SENDER,
        "s_.transmitted = s_.skip_base = report.done;",
        "s_.skip_base = report.done;",
    ),
    Mutation(
        "sends_what_landed",
        "what landed beyond a gap is sent again",
        SENDER,
        "s_.skip = report.landed;",
        "s_.skip = 0;",
    ),
    Mutation(
        "resume_on_older_attempt",
        "a report of an older attempt ends the wait: its paths are not those of the last proposal",
        SENDER,
        " && report.attempt == s_.attempt)",
        ")",
    ),
    Mutation(
        "resume_on_any_epoch",
        "a report of the epoch before ends the wait",
        SENDER,
        "report.epoch == s_.epoch && report.attempt == s_.attempt",
        "true",
    ),
    Mutation(
        "first_refusal_ends_the_sender",
        "a completion that blames no path ends the flow at once, though it may be the device's own fault",
        SENDER,
        "event.status == Completion::kFatal && is_believed(s_.blamed_at, s_.blamed, s_.acked)",
        "event.status == Completion::kFatal",
    ),
    Mutation(
        "posts_without_an_epoch",
        "posting does not stop while the next epoch is not agreed on",
        SENDER,
        "    if (s_.phase == SenderPhase::kRun) {\n      post();",
        "    {\n      post();",
    ),
    Mutation(
        "epoch_not_counted",
        "the next epoch has the number of the last one: the receiver sees another attempt at it",
        SENDER,
        "    ++s_.epoch;\n",
        "",
    ),
    Mutation(
        "attempt_not_counted",
        "a second attempt cannot be told from the first",
        SENDER,
        "++s_.attempt;",
        "s_.attempt = 1;",
    ),
    Mutation(
        "frees_what_was_sent",
        "sources are free when they were sent, not when they arrived",
        SENDER,
        "s_.acked = report.done;",
        "s_.acked = s_.transmitted;",
    ),
    Mutation(
        "keeps_the_old_paths",
        "the new epoch uses the paths of the old one",
        SENDER,
        "    s_.use = s_.next_use;\n",
        "",
    ),
    Mutation(
        "lost_data_overlooked",
        "a path that answers is trusted, although data before the probe is missing",
        SENDER,
        "return fail(p, FailureCause::kLost);",
        "return;",
    ),
    Mutation(
        "incarnation_used_twice",
        "a path is opened again under its old number",
        SENDER,
        "std::max(path(p).incarnation + 1, path(p).floor)",
        "path(p).floor",
    ),
    Mutation(
        "proposal_sent_once",
        "a proposal that is lost is not sent again",
        SENDER,
        "        send_proposal();\n        return probe_paths(s_.survivors | s_.next_use);",
        "        link_.arm(Timer::kResend, 0, 0);\n        return probe_paths(s_.survivors | s_.next_use);",
    ),
    Mutation(
        "waits_on_dead_paths",
        "a path that dies while the proposal is under way is not asked",
        SENDER,
        "        return probe_paths(s_.survivors | s_.next_use);",
        "        return;",
    ),
    Mutation(
        "second_failure_ignored",
        "a proposed path fails before the answer: it is used all the same",
        SENDER,
        "(s_.survivors | s_.next_use) & bit(p)) propose_again();",
        "s_.survivors & bit(p)) propose_again();",
    ),
    Mutation(
        "no_proposal_on_survivors",
        "the proposal goes by the new paths only: those that are left alive and well are never quiet",
        SENDER,
        "if ((s_.survivors | s_.next_use) & bit(p)) link_.send(p, message);",
        "if (s_.next_use & bit(p)) link_.send(p, message);",
    ),
    Mutation(
        "proposal_on_dead_paths",
        "a failed path still counts as a survivor",
        SENDER,
        "    s_.survivors &= PathSet(~bit(p));\n",
        "",
    ),
    # ---- the receiver ----------------------------------------------------------------------------------
    Mutation(
        "first_refusal_ends_the_receiver",
        "likewise at the other end",
        RECEIVER,
        "event.status == Completion::kFatal && is_believed(r_.blamed_at, r_.blamed, r_.done)",
        "event.status == Completion::kFatal",
    ),
    Mutation(
        "agrees_before_quiet",
        "the receiver agrees to the next epoch while data of the last one can still land",
        RECEIVER,
        "return r_.pending_epoch == r_.epoch || !(r_.use & ~r_.quiet);",
        "return true;",
    ),
    Mutation(
        "closing_taken_for_closed",
        "a path counts as quiet when its close begins",
        RECEIVER,
        "    if (r_.phase == ReceiverPhase::kRun && r_.use & bit(p)) fence();\n",
        "    r_.quiet |= PathSet(r_.use & bit(p));\n"
        "    if (r_.phase == ReceiverPhase::kRun && r_.use & bit(p)) fence();\n",
    ),
    Mutation(
        "one_proposal_quiets_all",
        "a proposal by one path is taken as the end of the data on all",
        RECEIVER,
        "r_.quiet |= PathSet(r_.use & bit(from));",
        "r_.quiet |= r_.use;",
    ),
    Mutation(
        "proposal_quiets_nothing",
        "only a closed path is quiet: living ones never are",
        RECEIVER,
        "    if (next) r_.quiet |= PathSet(r_.use & bit(from));\n",
        "",
    ),
    Mutation(
        "still_quiet_in_the_next_epoch",
        "what was quiet stays quiet: data of the next epoch is not counted",
        RECEIVER,
        "    r_.quiet = 0;\n",
        "",
    ),
    Mutation(
        "landed_while_closing_is_not_counted",
        "what lands between close and closed is in memory, but is not counted",
        RECEIVER,
        "!(r_.use & ~r_.quiet & bit(p))) return;",
        "!(r_.use & ~r_.quiet & bit(p)) || !is_open(path(p))) return;",
    ),
    Mutation(
        "done_beyond_a_gap",
        "a transfer counts as the last one, although one before it is missing",
        RECEIVER,
        "for (; r_.landed & 1; r_.landed >>= 1) ++r_.done;",
        "r_.done = event.sequence + 1, r_.landed = 0;",
    ),
    Mutation(
        "later_attempt_ignored",
        "an attempt at an epoch that was agreed to is not answered",
        RECEIVER,
        "if (!next && !(same && proposal.attempt > r_.attempt)) return;",
        "if (!next) return;",
    ),
    Mutation(
        "landed_not_told",
        "the report leaves out what landed beyond a gap",
        RECEIVER,
        "message.landed = r_.landed;",
        "message.landed = 0;",
    ),
    Mutation(
        "resume_before_the_fence",
        "the report names the proposed epoch before it is agreed to",
        RECEIVER,
        "    message.epoch = r_.epoch;\n    message.attempt = r_.attempt;",
        "    message.epoch = r_.pending_attempt ? r_.pending_epoch : r_.epoch;\n"
        "    message.attempt = r_.pending_attempt ? r_.pending_attempt : r_.attempt;",
    ),
    Mutation(
        "waits_for_the_dead",
        "the receiver's watchdog does not ask: a sender that died is waited for for ever",
        RECEIVER,
        "case Timer::kWatchdog: r_.watching = 0; return probe_paths(r_.use);",
        "case Timer::kWatchdog: return;",
    ),
    # ---- both ------------------------------------------------------------------------------------------
    Mutation(
        "failed_path_not_closed",
        "a failed path is left, and not closed",
        PATH,
        "    link.close(p);",
        "    return;",
    ),
    Mutation(
        "probe_of_the_last_life",
        "a probe of the incarnation before counts as under way: the new one is never asked",
        PATH,
        "  path.asked = 0;\n  path.answered = 0;",
        "  path.answered = 0;",
    ),
]
