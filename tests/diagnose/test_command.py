"""Goal: the command says which jobs there are, of which it knows nothing, and ends with the exit code for that.

Method: records made by hand in place of this host's; the real command in this process.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from diagnose.records import Call, records_of
from starling.cli.root import app
from starling.diagnose import api, sources
from starling.diagnose.job import Job
from starling.diagnose.record import Record

Here = Callable[..., None]
HEALTHY, CULPRIT, USAGE, NOT_KNOWN = 0, 1, 2, 3
DONE: list[list[Call]] = [[("x", 0, 9, 8)], [("x", 0, 9, 8)]]
HANGS: list[list[Call]] = [[("x", 0, 9, None)], []]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Here:
    """Puts the records of these jobs in place of this host's."""

    def put(*jobs: list[Record]) -> None:
        monkeypatch.setattr(sources, "of_this_host", lambda: [record for job in jobs for record in job])

    return put


def job_named(name: str, calls: list[list[Call]], number: int = 0, **changes: Any) -> list[Record]:
    """Its ranks have ids of their own."""
    shift = 50 * number
    return [
        dataclasses.replace(
            record,
            id=record.id + shift,
            job=name,
            arena="",  # nothing is looked for in /dev/shm
            groups=tuple(
                dataclasses.replace(group, members=tuple(member + shift for member in group.members))
                for group in record.groups
            ),
        )
        for record in records_of(calls, **changes)
    ]


def diagnosis(*arguments: str) -> Any:
    return CliRunner(env={"COLUMNS": "240"}).invoke(app, ["diagnose", *arguments])


@pytest.fixture
def breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job "broken" cannot be judged."""

    def judge(job: Job, *arguments: Any) -> Any:
        return {}[0] if job.name == "broken" else real(job, *arguments)

    real = api.judge
    monkeypatch.setattr(api, "judge", judge)


def test_a_job_that_cannot_be_judged_hides_no_other(here: Here, breaks: None) -> None:
    broken, hangs, done = (
        job_named(name, calls, number)
        for number, (name, calls) in enumerate((("broken", DONE), ("hangs", HANGS), ("done", DONE)))
    )
    here(broken, hangs, done)
    found = diagnosis()
    assert found.exit_code == CULPRIT
    assert found.stdout.startswith("rank 1 (process 1001 on here) has not called ")
    assert "job 'done', 2 ranks, 2 calls, nobody is waited for" in found.stdout
    here(broken, done)
    found = diagnosis()
    assert found.exit_code == NOT_KNOWN
    assert found.stdout.startswith("not known: job 'broken', 2 ranks: it could not be judged: KeyError")
    told = json.loads(diagnosis("--json").stdout)
    assert not told["healthy"]
    assert [(one["job"], one["healthy"]) for one in told["jobs"]] == [("broken", False), ("done", True)]
    assert "KeyError" in told["jobs"][0]["not_known"]


def test_a_job_by_all_of_its_names(here: Here) -> None:
    """As it is shown, with the blank that launchers' names end with or without it; its run id; its group's name."""
    abc = "TORCHELASTIC_RUN_ID=abc MASTER_PORT=29511"
    here(job_named(abc + " ", DONE), job_named("SLURM_JOB_ID=17 SLURM_STEP_ID=0 ", HANGS, 1))
    for name in (abc, abc + " ", "abc"):
        found = diagnosis("--job", name)
        assert (found.exit_code, f"healthy: job '{abc}', 2 ranks" in found.stdout) == (HEALTHY, True), name
    assert diagnosis("--job", "17").exit_code == CULPRIT
    assert diagnosis("--job", "SLURM_JOB_ID=17 SLURM_STEP_ID=0").exit_code == CULPRIT
    assert [one["job"] for one in json.loads(diagnosis("--job", "abc", "--json").stdout)["jobs"]] == [abc]
    both = json.loads(diagnosis("--job", "group 0", "--json").stdout)["jobs"]
    assert len(both) == 2, "both jobs' groups are called so, as starling top calls them"
    assert diagnosis("--job", "29511").exit_code == USAGE, "a port alone is no name"


def test_a_job_that_is_not_there(here: Here) -> None:
    here(job_named("one", DONE), job_named("two", DONE, 1, state="dead"))
    found = diagnosis("--job", "three")
    assert (found.exit_code, found.stdout) == (USAGE, "")
    assert "no job 'three' has left a record; there are: 'one', 'two' (ended)" in found.stderr
    assert diagnosis("--job", "two").exit_code == CULPRIT
    here()
    found = diagnosis("--job", "three")
    assert found.exit_code == USAGE and "no job 'three' has left a record; there are none" in found.stderr
    found = diagnosis()
    assert found.exit_code == NOT_KNOWN, "nothing is known of any job"
    assert found.stdout.startswith("not known: no job ") and "remedy: " in found.stdout
    assert not json.loads(diagnosis("--json").stdout)["healthy"]


def test_of_jobs_that_have_ended_the_latest_are_shown(here: Here) -> None:
    """On one host it was all that there had ever been, 1,222 lines."""
    here(job_named("lives", DONE), *(job_named(f"old {k}", DONE, k + 1, state="ended") for k in range(12)))
    found = diagnosis("--ended")
    assert found.stdout.count("(ended)") == 10 and "job 'lives'" in found.stdout
    assert (
        "and 2 jobs that began before those and have ended, 0 of them with a finding: --json" in found.stdout
    )
    assert len(json.loads(diagnosis("--ended", "--json").stdout)["jobs"]) == 13
    assert "began before" not in diagnosis().stdout
    here(*(job_named("again", DONE, k, state="ended") for k in range(12)))
    assert diagnosis("--job", "again", "--ended").stdout.count("(ended)") == 12, (
        "who names a job sees all of it"
    )


def test_ranks_of_other_hosts_of_which_nothing_is_known(here: Here) -> None:
    """Nobody here is waited for, but that is not healthy."""
    here(job_named("half", DONE, linked=True)[1:])
    found = diagnosis()
    assert found.exit_code == NOT_KNOWN
    assert found.stdout.startswith("not known: job 'half', 2 ranks: ") and "rank 0" in found.stdout
