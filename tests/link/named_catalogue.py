"""Bugs planted in messages that go from buffer to buffer: each one an edit of a source in src/link, and the test of
named_test.cc that must fail by it.
"""

from __future__ import annotations

from planted import Mutation

LINK = "carry/peer_link.cc"
ARRIVALS = "carry/arrivals.cc"
CONNECTION = "tcp/connection.cc"

MUTATIONS = [
    (
        Mutation(
            "told_when_reports_are_due",
            "a sender hears only later that its buffer is its own again",
            ARRIVALS,
            "    awaited_ = true;\n",
            "",
        ),
        "NamedMessages.AreToldOnceAllHaveCome",
    ),
    (
        Mutation(
            "taken_one_too_many",
            "with a message that has landed the next one's source is its caller's too",
            LINK,
            "transfer.taken = message.number + last;",
            "transfer.taken = message.number + 2 * last;",
        ),
        "NamedMessages.AreTheirCallersOnceTaken",
    ),
    (
        Mutation(
            "unseen_source_kept",
            "what a block has posted and the proxy has not seen is read from the caller's buffer after the end",
            LINK,
            "      read_counters(*theirs);  // of what the channel's blocks have posted until now\n",
            "",
        ),
        "NamedMessages.AreReadNoMoreOnceTakenBack",
    ),
    (
        Mutation(
            "told_before_its_board",
            "a message that is taken back overtakes what its operation is",
            LINK,
            "      tell_boards(lane, *own);  // before messages, as ever: the peer compares\n",
            "",
        ),
        "NamedMessages.AreToldBehindTheirBoardsOnceTakenBack",
    ),
    (
        Mutation(
            "landings_kept",
            "messages land in the caller's buffer after the end",
            LINK,
            "    landings.wanted.clear();\n",
            "",
        ),
        "NamedMessages.AreWrittenNoMoreOnceTakenBack",
    ),
    (
        Mutation(
            "landing_not_bounded",
            "a message longer than its receive is written behind the caller's buffer",
            ARRIVALS,
            "at + bytes > landing.bytes ?",
            "false ?",
        ),
        "NamedMessages.DoNotOverflow",
    ),
    (
        Mutation(
            "half_sent_source_kept",
            "the rest of a frame that a socket has half of is read from the caller's buffer after the end",
            CONNECTION,
            "      out.body.payload = to;\n",
            "      out.body.payload = out_.front().header.sequence == sequence ? out.body.payload : to;\n",
        ),
        "AmidAFrame.ASourceMoves",
    ),
    (
        Mutation(
            "half_read_destination_kept",
            "the rest of a payload that has half come is written into the caller's buffer after the end",
            CONNECTION,
            "  if (part_ == Part::kPayload) to_ = to + (to_ - payload_);\n",
            "",
        ),
        "AmidAFrame.ADestinationMoves",
    ),
]
