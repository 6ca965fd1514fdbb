"""Goal: `starling bench overlap` compares libraries on one base, all of its ranks go through the same turns, and each
share of a core is of a rank and a thread that it names.

Method: its parts that need no GPU: rows of made up turns; ranks that are threads, whose measurements are made up and
differ; a thread that works, seen by each clock, and a folder in the place of the system's.
"""

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from starling.bench import overlap, overlap_cpu, overlap_turns, plots, tables
from starling.bench.overlap_rank import Rank

LIBRARIES = ("starling", "nccl")


def turn(library: str, alone_us: float, beside_us: float, throughout: bool = True) -> overlap_turns.Turn:
    return overlap_turns.Turn(library, alone_us, beside_us, alone_us / 2, beside_us / 2, throughout)


def test_slowdowns_of_a_kernel_are_on_one_base() -> None:
    """Alone it once was another figure for each library, 1,509 and 1,393 us."""
    turns = [
        *(turn("starling", 1500, 1600), turn("nccl", 1300, 1500)),
        *(turn("starling", 1700, 1700), turn("nccl", 1400, 1800, throughout=False)),
        *(turn("starling", 1510, 1650), turn("nccl", 1390, 1520)),
    ]
    ours, theirs = overlap_turns.rows(turns)
    assert (ours["library"], theirs["library"]) == ("starling", "nccl")
    assert ours["kernel_alone_us"] == theirs["kernel_alone_us"] == 1450  # of 1300 1390 1400 1500 1510 1700
    assert [row["kernel_alone_in_own_turns_us"] for row in (ours, theirs)] == [1510, 1390]
    assert [row["kernel_slowdown"] for row in (ours, theirs)] == [round(us / 1450, 3) for us in (1650, 1520)]
    # What a collective takes alone is its library's.
    assert [row["collective_alone_us"] for row in (ours, theirs)] == [755, 695]
    assert [row["collective_slowdown"] for row in (ours, theirs)] == [
        round(825 / 755, 3),
        round(760 / 695, 3),
    ]
    assert [row["beside_throughout"] for row in (ours, theirs)] == [True, False]


class Fake:
    """Both measure and are what is measured: of a rank, by which times differ."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.did: list[Any] = []

    def of(self, kernel: str) -> str:
        return kernel

    def us(self, compute: Any, computes: int, communicate: Any, communications: int) -> tuple[float, float]:
        self.did.append((computes, communicate, communications))
        beside = 1.6 if computes and communications else 1.0
        return 1000.0 * beside * (1 + self.rank / 7), 500.0 * beside**4 * (1 + self.rank / 3)


class Agreement:
    """The mean of what ranks say; who is in another turn than the others breaks it."""

    def __init__(self, ranks: int) -> None:
        self.said = [0.0] * ranks
        self.barrier = threading.Barrier(ranks, timeout=60)

    def of(self, rank: int, value: float) -> float:
        self.said[rank] = value
        self.barrier.wait()
        mean = sum(self.said) / len(self.said)
        self.barrier.wait()
        return mean


def fake_rank(number: int, agreement: Agreement, results: Any) -> tuple[Rank, Fake]:
    rank, fake = Rank.__new__(Rank), Fake(number)
    rank.rounds, rank.results, rank.groups = 2, results, dict.fromkeys(LIBRARIES)
    rank.measured = rank.kernels = fake  # type: ignore[assignment]
    rank.agreed = lambda value: agreement.of(number, value)  # type: ignore[method-assign]
    rank.collective = lambda name, library: f"{name} of {library}"  # type: ignore[assignment, method-assign, return-value]
    rank.cpu = lambda communicate: {"cpu_clock": "ticks", "cpu_shares": {"caller": 0.1 * (number + 1)}}  # type: ignore[method-assign]
    return rank, fake


def test_all_ranks_go_through_the_same_turns(tmp_path: Path) -> None:
    """A rank that launched more, or in another order, than its peers would hang both libraries."""
    agreement = Agreement(2)
    files = [(tmp_path / f"results.{number}").open("w") for number in range(2)]
    ranks = [fake_rank(number, agreement, file) for number, file in enumerate(files)]
    work = [
        threading.Thread(target=rank.measure, args=(["issue-bound"], ["broadcast", "reduce"]))
        for rank, _ in ranks
    ]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    for file in files:
        file.close()
    did, other = (fake.did for _, fake in ranks)
    assert did == other
    turns = list(dict.fromkeys(what for _, what, _ in did))
    assert turns == [f"{name} of {library}" for name in ("broadcast", "reduce") for library in LIBRARIES]
    order = [what for computes, what, communications in did if communications == 0]  # a turn begins so
    assert order == [*turns[:2] * 2, *turns[2:] * 2]
    rows = overlap._merged(tmp_path, 2)
    assert [(row["collective"], row["library"]) for row in rows] == [
        (name, library) for name in ("broadcast", "reduce") for library in LIBRARIES
    ]
    assert all(row["kernel_slowdown"] == 1.6 and row["beside_throughout"] for row in rows)
    assert rows[0]["cpu_shares"] == [
        {"rank": 0, "threads": {"caller": 0.1}},
        {"rank": 1, "threads": {"caller": 0.2}},
    ]


def test_it_launches_more_until_both_are_there_to_the_end() -> None:
    class Slowed(Fake):
        """A collective that a kernel makes three times as slow: twice as many kernels are not enough."""

        def us(
            self, compute: Any, computes: int, communicate: Any, communications: int
        ) -> tuple[float, float]:
            self.did.append((computes, communications))
            return 1.0, 3.0

    rank, _ = fake_rank(0, Agreement(1), None)
    rank.measured = slowed = Slowed(0)  # type: ignore[assignment]
    assert rank.beside(1, lambda: None, lambda: None, (10, 10)) == (3.0, True)
    assert slowed.did == [(20, 10), (40, 10)]
    assert rank.beside(1, lambda: None, lambda: None, (1, 10)) == (3.0, False)


def test_it_joins_what_its_ranks_found(tmp_path: Path) -> None:
    def reported(kernel_slowdown: float, **shares: float) -> str:
        numbers = {**dict.fromkeys(overlap.NUMBERS, 2.0), "kernel_slowdown": kernel_slowdown}
        names = {"kernel": "issue-bound", "collective": "all_reduce", "library": "starling"}
        return json.dumps({**names, **numbers, "cpu_clock": "ticks", "cpu_shares": shares}) + "\n"

    (tmp_path / "results.0").write_text(reported(1.5, caller=0.2, poller=0.1) + reported(1.0))
    (tmp_path / "results.1").write_text(
        reported(1.3, caller=0.1, poller=0.4, idle=0.004) + reported(1.0)[:20]
    )  # not written to its end
    rows = overlap._merged(tmp_path, 2)
    assert [row["kernel_slowdown"] for row in rows] == [1.4]
    assert overlap.busiest(rows[0]["cpu_shares"]) == {
        "poller": (0.4, 1),
        "caller": (0.2, 0),
        "idle": (0.004, 1),
    }
    assert overlap.line(rows[0]).endswith("| poller 0.40 (1), caller 0.20 (0)")
    settings = {"ranks": 2, "bytes": 256 << 20}
    machine = {"cpu": "c", "cores": 2, "torch": "", "openmpi": ""}
    doc = {"rows": rows, "settings": settings, "machine": machine, "command": "", "commit": "", "date": ""}
    assert "| all_reduce | 1.40 / - | 2.00 / - |" in tables.overlap_table(doc)
    plots.plot_overlap(doc, tmp_path / "overlap.png")
    assert (tmp_path / "overlap.png").stat().st_size > 1000


@pytest.mark.parametrize(
    "file", sorted((Path(__file__).parents[2] / "bench/results").glob("gpu_overlap_*.json"))
)
def test_results_of_before_have_tables(file: Path) -> None:
    assert "/ " in tables.overlap_table(json.loads(file.read_text()))


@pytest.mark.parametrize("clock", ["ticks", overlap_cpu.finest_clock()])
def test_who_works_has_its_share_by_its_name(clock: str) -> None:
    """The caller waits while one thread computes for 0.1 s; another one did for 0.3 s, before."""
    begin, over = threading.Event(), threading.Event()
    did = {name: threading.Event() for name in ("st-before", "st-busy")}

    def compute(name: str, seconds: float) -> None:
        Path("/proc/thread-self/comm").write_text(name)
        if name == "st-busy":
            begin.wait()
        while time.thread_time() < seconds:
            pass
        did[name].set()
        over.wait()

    def work() -> None:
        begin.set()
        did["st-busy"].wait()

    threads = [threading.Thread(target=compute, args=one) for one in (("st-before", 0.3), ("st-busy", 0.1))]
    for thread in threads:
        thread.start()
    did["st-before"].wait()
    begin_s = time.monotonic()
    try:
        found = overlap_cpu.shares(work, clock, window_s=0.2)
    finally:
        begin.set()
        over.set()
        for thread in threads:
            thread.join()
    assert found["st-busy"] * (time.monotonic() - begin_s) > 0.05
    assert next(iter(found)) == "st-busy", found  # before what did less


def test_the_finest_clock_that_is_there_is_read(tmp_path: Path) -> None:
    own, other = (tmp_path / str(threading.get_native_id() + k) for k in range(2))
    assert overlap_cpu.finest_clock(tmp_path) == "ticks"
    for task in (own, other):
        task.mkdir()
        (task / "comm").write_text("st-poller\n")
        (task / "stat").write_text(f"{task.name} (st) poller) S {' '.join('0' * 10)} 3 4 0 0\n")
        (task / "schedstat").write_text("0 0 0\n")  # a kernel that has the file, and does not count
    assert overlap_cpu.finest_clock(tmp_path) == "ticks"
    (own / "schedstat").write_text("4000000 1 1\n")
    (other / "schedstat").write_text("1500000 1 1\n")
    assert overlap_cpu.finest_clock(tmp_path) == "schedstat"
    assert overlap_cpu.threads("schedstat", tmp_path) == {int(other.name): ("st-poller", 0.0015)}
    (tmp_path / "2").mkdir()  # a thread that ended meanwhile
    assert overlap_cpu.threads("ticks", tmp_path) == {int(other.name): ("st-poller", pytest.approx(0.07))}
