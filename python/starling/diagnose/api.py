"""Records in, diagnoses out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from starling.diagnose import paths, sources
from starling.diagnose.finding import Diagnosis
from starling.diagnose.host import Hosts
from starling.diagnose.job import Job, jobs_of
from starling.diagnose.judge import judge

AFTER_S = 5.0


def diagnose(
    files: Sequence[Path | str] = (),
    *,
    job: str | None = None,
    after_s: float = AFTER_S,
    ended: bool = False,
    root: Path = Path("/"),
) -> list[Diagnosis]:
    """Of all jobs of this user on this host, or of those that left these files (folders: all ``*.flight`` in them).

    job: only jobs of this name. after_s: a call that waits for less is no hang. ended: jobs that have ended too;
    without it they are looked at only where none lives, and then the last one. root: where /proc and control groups
    are read.
    """
    hosts = Hosts(root)
    if files:
        jobs = jobs_of(sources.of_files(Path(file) for file in files))
    else:
        jobs = jobs_of(sources.of_this_host())
    if job is not None:
        jobs = [one for one in jobs if job in (one.name, one.world.name if one.world else None)]
    if not files and not ended:
        live = [one for one in jobs if one.live]
        jobs = live or _last(jobs)
    # Of ranks that are gone, and of files, their records say it.
    look = paths.NOTHING if files else paths.watch(record for one in jobs for record in one.records)
    return [judge(one, hosts, after_s, look) for one in sorted(jobs, key=lambda one: -_began(one))]


def _last(jobs: list[Job]) -> list[Job]:
    return [max(jobs, key=lambda one: max(record.alive_ns for record in one.records))] if jobs else []


def _began(job: Job) -> int:
    return min(record.created_ns for record in job.records)
