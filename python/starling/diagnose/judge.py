"""The verdict on a job: what holds it up, the most certain cause first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from starling.diagnose import failures, gpus, remote, stages, words
from starling.diagnose.finding import Diagnosis, Finding, RankView
from starling.diagnose.host import THROTTLED_SHARE, CpuLimit, Hosts
from starling.diagnose.job import Job, Moment
from starling.diagnose.pace import slow_rank
from starling.diagnose.paths import NOTHING, Look, slow_path
from starling.diagnose.record import Record
from starling.diagnose.waits import circle, culprit_of, not_called, waits_of


def judge(
    job: Job, hosts: Hosts, after_s: float, look: Look = NOTHING, told: Sequence[remote.Heard] = ()
) -> Diagnosis:
    """``after_s``: a call that waits for less is no hang. ``look``: at the paths of this host's live ranks.
    ``told``: to them by ranks of other hosts."""
    now = Moment(job)
    on_gpus = any(record.device.startswith("cuda") for record in job.records)
    of_host = gpus.of_this_host() if on_gpus else []
    slow, throttled = slow_path(job, look), gpus.throttled(job, of_host, hosts)
    path = slow.finding if slow else None
    found: list[Finding | None] = [failures.died(job), failures.stopped(job, hosts), failures.mismatch(job)]
    if not any(found):
        found += _held_up(job, hosts, after_s)
    if not any(found):
        found.append(remote.not_called(job, told, hosts, after_s))
    found += [failures.not_joined(job, after_s), _starved(job, hosts)]
    if any(found):
        # That it does not end, or that nothing is known of who is waited for, says less than a path that is slow.
        comes_first = slow is not None and slow.is_the_wires and _is_vague(found, job)
        found = [path, *found, throttled] if comes_first else [*found, throttled, path]
    else:
        found += [failures.no_sender(job, after_s), throttled, slow_rank(job, hosts), path]
        found += [failures.aborted(job)]
    if not any(found) and any(record.state == "dead" for record in job.records):
        found.append(_killed(job))
    findings = tuple(finding for finding in found if finding is not None)
    return Diagnosis(
        job.name,
        job.size,
        findings,
        _table(now, hosts),
        tuple(_notes(job, hosts, of_host)),
        job.live,
        "" if findings else remote.not_known(job, told),
    )


def _is_vague(found: list[Finding | None], job: Job) -> bool:
    first = next(finding for finding in found if finding is not None)
    known = {rank.number for rank in job.ranks.values() if rank.record is not None}
    return first.kind == "unfinished" or (first.kind == "not called" and not known & set(first.ranks))


def _held_up(job: Job, hosts: Hosts, after_s: float) -> list[Finding | None]:
    """Who is waited for: now, or when operations ended by a fault. Copies show that fault's moment, and what their
    ranks did until each made its own says nothing of it."""
    at_ns = job.broken_ns
    moments = [Moment(job, at_ns), Moment(job)] if job.is_copied else [Moment(job), Moment(job, at_ns)]
    for moment in moments if at_ns else [Moment(job)]:
        finding = _hang(moment, hosts, after_s)
        if finding is None:
            continue
        # Who waits without a path to the others says nothing of what those do.
        lost = failures.lost(job, moment.calls[0].operation.submitted_ns)
        return [lost, finding] if moment.at_ns == 0 else [lost, finding, failures.left(job)]
    return [failures.lost(job), failures.left(job)]


def _hang(moment: Moment, hosts: Hosts, after_s: float) -> Finding | None:
    if moment.at_ns:  # a shorter timeout than what we call a hang may have ended it
        oldest = max((call.waited_s for call in moment.calls), default=0.0)
        after_s = min(after_s, oldest / 2)
    waits = waits_of(moment, after_s)
    finding = circle(moment, waits, after_s) or not_called(moment, waits, hosts, after_s)
    return finding or _unfinished(moment, hosts, after_s)


def _unfinished(moment: Moment, hosts: Hosts, after_s: float) -> Finding | None:
    """All have called, and yet it does not end."""
    for call in moment.calls:
        if call.waited_s < after_s or moment.missing(call) or call.operation.number == 0:
            continue
        members = [moment.job.ranks[member] for member in call.lane.members if member in moment.job.ranks]
        records = [rank.record for rank in members if rank.record is not None]
        silent = [
            rank
            for rank in members
            if rank.record is not None
            and rank.record.state == "live"
            and (rank.record.seen_ns - rank.record.alive_ns) / 1e9 >= after_s
        ]
        what = f"all ranks have called {call.operation} in {call.place()}, and it has not ended for "
        what += words.seconds(call.waited_s)
        remedy = "report it, with `starling diagnose --json`"
        if silent:
            what += f"; {words.ranks(rank.number for rank in silent)} did not run meanwhile"
            remedy = "see what the host of that rank is busy with"
        elif len({record.host for record in records}) > 1:
            what += f"; its ranks are on {len({record.host for record in records})} hosts"
            remedy = "look at the ports between these hosts (ranks' logs with STARLING_LOG=info name them)"
        details = [line for record in records for line in hosts.words_for(record)]
        return Finding(
            "unfinished",
            what,
            remedy,
            tuple(rank.number for rank in silent),
            call.lane.name,
            call.operation.sequence,
            tuple(details),
        )
    return None


def _threads(record: Record) -> int:
    return max(1, record.blocks if record.device == "cpu" else 1) + record.linked


def _starved(job: Job, hosts: Hosts) -> Finding | None:
    """A CPU quota below the threads that the ranks in it need, and it was felt."""
    ranks_in: dict[str, list[int]] = defaultdict(list)
    limits: dict[str, CpuLimit] = {}
    needed: dict[str, int] = defaultdict(int)
    for record in job.records:
        limit = hosts.limit(record)
        if limit is not None:
            ranks_in[limit.group].append(job.number(record.id))
            limits[limit.group] = limit
            needed[limit.group] += _threads(record)
    for group, limit in limits.items():
        if limit.cores >= needed[group] or limit.throttled_share < THROTTLED_SHARE:
            continue
        return Finding(
            "starved",
            f"the host starves {words.ranks(ranks_in[group])}: control group {group} may use {limit.cores:.3g} cores "
            f"where they need {needed[group]}, and was throttled in {limit.throttled_share:.0%} of its periods",
            f"raise the CPU quota to at least {needed[group]} cores (docker --cpus, cpu.max), or remove it",
            tuple(sorted(ranks_in[group])),
        )
    return None


def _killed(job: Job) -> Finding:
    when = max(record.alive_ns for record in job.records)
    waits = waits_of(Moment(job), 0.0)
    behind = culprit_of(waits)
    details = []
    if behind is not None and behind.record is not None:
        awaited = [wait for wait in waits if wait.awaited.id == behind.id]
        details.append(
            f"{words.who(behind)} had not called {awaited[0].call.operation} in {awaited[0].call.place()}, which "
            f"{words.ranks(sorted({wait.waiter.number for wait in awaited}))} had: if a launcher ended the others, "
            "that rank may have ended first"
        )
    return Finding(
        "killed",
        f"all {job.size} ranks ended at about the same time, without leaving in order, and none waited for another "
        f"long before ({words.seconds(max(0, job.seen_ns - when) / 1e9)} ago)",
        "see what ended the job: its launcher's log, the scheduler's, the kernel's",
        details=tuple(details),
    )


def _notes(job: Job, hosts: Hosts, of_host: list[gpus.Gpu]) -> list[str]:
    told = []
    by_host: dict[str, list[Record]] = defaultdict(list)
    for record in job.records:
        by_host[record.host_name].append(record)
    for host, records in by_host.items():
        cores = max((hosts.cores(record) for record in records), default=0)
        need = sum(_threads(record) for record in records)
        if 0 < cores < need:
            told.append(
                f"{host}: {len(records)} ranks need {need} threads and have {cores} cores (load {hosts.load():.1f})"
            )
    told += gpus.untied(job, of_host, hosts)
    missing = [rank.number for rank in job.ranks.values() if rank.record is None]
    if missing:
        told.append(f"no record of {words.ranks(missing)} is here: other hosts, or ranks that left in order")
    return told


def _table(moment: Moment, hosts: Hosts) -> tuple[RankView, ...]:
    job = moment.job
    oldest = {call.rank.id: call for call in reversed(moment.calls)}
    known = stages.dimensions(job)
    rows = []
    for rank in job.ranks.values():
        record = rank.record
        if record is None:
            rows.append(RankView(rank.number, "?", 0, "no record", 0, "", ""))
            continue
        call = oldest.get(rank.id)
        waits = ""
        if call is not None:
            missing = [other.number for other in moment.missing(call)]
            waits = f"{call.operation} in {call.place()} ({words.seconds(call.waited_s)})"
            waits += f", for {words.ranks(missing)}" if missing else ""
        stage = stages.name_of(known, {rank.number})
        state = hosts.stopped(record) or record.state
        rows.append(
            RankView(
                rank.number,
                record.host_name,
                record.pid,
                state + (f"; {stage}" if stage else ""),
                record.submissions,
                words.last_of(job, rank).removeprefix("its last call was "),
                waits,
            )
        )
    return tuple(rows)
