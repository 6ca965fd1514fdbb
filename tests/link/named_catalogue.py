"""Bugs planted in messages that go from buffer to buffer: each one an edit of a source in src/link, and the test of
named_test.cc that must fail by it.
"""

from __future__ import annotations

from planted import Mutation

LINK = "carry/peer_link.cc"
ARRIVALS = "carry/arrivals.cc"
STRAIGHT = "carry/straight.cc"
CONNECTION = "tcp/connection.cc"
RECEIVING = "tcp/receiving_flow.cc"
SENDING = "tcp/sending_flow.cc"

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
            STRAIGHT,
            "      read_counters(*theirs);  // of what the channel's blocks have posted until now\n",
            "",
        ),
        "NamedMessages.AreReadNoMoreOnceTakenBack",
    ),
    (
        Mutation(
            "told_before_its_board",
            "a message that is taken back overtakes what its operation is",
            STRAIGHT,
            "      tell_boards(lane, *own);  // before messages, as ever: the peer compares\n",
            "",
        ),
        "NamedMessages.AreToldBehindTheirBoardsOnceTakenBack",
    ),
    (
        Mutation(
            "landings_kept",
            "messages land in the caller's buffer after the end",
            STRAIGHT,
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
    (
        Mutation(
            "written_after_the_end",
            "paths by which the peer writes are not fenced before the buffer is given back",
            STRAIGHT,
            "  if (receiving_ && is_written_by_peer(*own)) receiving_->fence_writes(offers_ + 1);\n",
            "",
        ),
        "Quarantine.WhatWasOfferedIsFenced",
    ),
    (
        Mutation(
            "fenced_where_it_began",
            "a landing to which nothing has come yet is taken for one that the peer does not write to",
            STRAIGHT,
            "return wanted.offered;",
            "return wanted.offered && wanted.comes;",
        ),
        "Quarantine.WhatWasOfferedIsFenced",
    ),
    (
        Mutation(
            "one_path_fenced",
            "a path that the epoch does not use is left open to the peer's writes",
            RECEIVING,
            "kind() == LinkKind::kVerbs) broke(*path, 0);",
            "kind() == LinkKind::kVerbs && (state_.use & bit(path->number_))) broke(*path, 0);",
        ),
        "Quarantine.WhatWasOfferedIsFenced",
    ),
    (
        Mutation(
            "offers_stay_good",
            "paths that are opened later do not say that offers were taken back",
            RECEIVING,
            "  offers_void_ = offers_void;\n",
            "",
        ),
        "Quarantine.TheNextPathsSayThatOffersAreVoid",
    ),
    (
        Mutation(
            "last_offer_stays_good",
            "of what was taken back the last offer is still good by paths that are opened later",
            STRAIGHT,
            "fence_writes(offers_ + 1)",
            "fence_writes(offers_)",
        ),
        "Quarantine.TheNextPathsSayThatOffersAreVoid",
    ),
    (
        Mutation(
            "fenced_in_vain",
            "paths are broken although the peer has left the lane",
            STRAIGHT,
            "    return false;\n  return std::any_of",
            "    return true;\n  return std::any_of",
        ),
        "Quarantine.WhatNobodyWritesIsNotFenced",
    ),
    (
        Mutation(
            "read_after_the_end",
            "a path whose device reads the buffer is not fenced before that is given back",
            SENDING,
            "      broke(*path, 0);\n}",
            "      (void)path;\n}",
        ),
        "Quarantine.WhatIsSentFromABufferIsFenced",
    ),
    (
        Mutation(
            "broken_at_once",
            "paths are broken without waiting for a peer that is about to leave the lane",
            STRAIGHT,
            "  return is_written_by_peer(own) ||\n         std::any_of(",
            "  return std::any_of(",
        ),
        "Quarantine.WhatThePeerWritesIsSoUntilItLeaves",
    ),
    (
        Mutation(
            "read_source_forgotten",
            "paths are broken without waiting for what a device is about to have sent",
            STRAIGHT,
            "return transfer.named && transfer.source != nullptr && ",
            "return transfer.named && transfer.source == nullptr && ",
        ),
        "Quarantine.WhatADeviceReadsIsSoUntilItHasCome",
    ),
    (
        Mutation(
            "placed_among_others",
            "a message of one step is placed as if those of others between had their places there too",
            ARRIVALS,
            "landing.messages.place_of(message)",
            "(message - landing.messages.first)",
        ),
        "NamedMessages.GoToTheirOwnPlaceAmongOthers",
    ),
    (
        Mutation(
            "offered_among_others",
            "a peer is offered a place for messages of other steps, too",
            LINK,
            " || landing.messages.stride != 1",
            "",
        ),
        "Quarantine.WhatIsAmongOthersIsNotOffered",
    ),
    (
        Mutation(
            "lent_by_others",
            "a message is taken for registered since those of another step are",
            STRAIGHT,
            "return loan.messages.has(message);",
            "return message >= loan.messages.first;",
        ),
        "Quarantine.WhatIsLentIsOneStepsAmongOthers",
    ),
]
