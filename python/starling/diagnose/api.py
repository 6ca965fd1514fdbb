"""Records in, diagnoses out."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path

from starling.diagnose import paths, remote, sources
from starling.diagnose.finding import Diagnosis
from starling.diagnose.host import Hosts
from starling.diagnose.job import Job, jobs_of
from starling.diagnose.judge import judge
from starling.diagnose.paths import Look

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

    job: of this name only (Job.names). after_s: a call that waits for less is no hang. ended: jobs that have ended too;
    without it they are looked at only where none lives, and then the last one. root: where /proc and control groups
    are read.
    """
    hosts = Hosts(root)
    jobs = _jobs(files)
    if job is not None:
        jobs = [one for one in jobs if job.strip() in one.names]
    if not files and not ended:
        live = [one for one in jobs if one.live]
        jobs = live or _last(jobs)
    # Of ranks that are gone, and of files, their records say it.
    look = paths.NOTHING if files else paths.watch(record for one in jobs for record in one.records)
    told = [] if files else remote.listen((record for one in jobs for record in one.records), after_s)
    return [_judged(one, hosts, after_s, look, told) for one in sorted(jobs, key=lambda one: -_began(one))]


def known_jobs(files: Sequence[Path | str] = ()) -> list[str]:
    """The names of all that left records, for whoever asked for another: those that live first, then the latest."""
    ordered = sorted(_jobs(files), key=lambda one: (not one.live, -_began(one)))
    return list(dict.fromkeys(f"'{one.name}'" + ("" if one.live else " (ended)") for one in ordered))


def _jobs(files: Sequence[Path | str]) -> list[Job]:
    return jobs_of(sources.of_files(Path(file) for file in files) if files else sources.of_this_host())


def _judged(job: Job, hosts: Hosts, after_s: float, look: Look, told: list[remote.Heard]) -> Diagnosis:
    """A job that we fail at must not hide the others."""
    try:
        return judge(job, hosts, after_s, look, told)
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(at.filename).name}:{at.lineno}"
        why = f"it could not be judged: {type(error).__name__}: {error} ({place}); remedy: report it"
        return Diagnosis(job.name, job.size, (), live=job.live, not_known=why)


def _last(jobs: list[Job]) -> list[Job]:
    return [max(jobs, key=lambda one: max(record.alive_ns for record in one.records))] if jobs else []


def _began(job: Job) -> int:
    return min(record.created_ns for record in job.records)
