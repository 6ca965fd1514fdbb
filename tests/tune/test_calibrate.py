"""Goal: the cost model's machine is the one at hand, and what it says decides what is measured.

Method: made-up machines, timed by the model itself, which the fit has to find again; noise; the choice of plans on
links that differ; the real thing on threads and on processes, whatever it hears there.
"""

import math
from dataclasses import replace
from functools import partial

import pytest

from starling import ir
from starling.tune import Link, Machine, calibrate, cost_us
from starling.tune.calibrate import Fit, Shot, assumed, calibrated, fitted, heard, probes
from starling.tune.candidates import CHOICE, candidates
from starling.tune.measure import Point, Work
from starling.tune.model import GPUS, cpu
from starling.tune.tuning import Tuning, place_in_model, works_of

SLOW = Link(0.2, 2000.0)


def timed_on(machine: Machine, half_bytes_per_us: float, ranks: int, blocks: int) -> dict[str, float]:
    def time_us(shot: Shot, name: str) -> float:
        here = replace(machine, reduce_bytes_per_us=half_bytes_per_us) if shot.dtype == "float16" else machine
        if name not in ("turn", "pulled"):
            here = replace(here, wait_us=0.0)  # two ranks alone have a core each
        return 3.0 + cost_us(shot.plan, shot.bytes, here)  # what a call costs besides is no step's

    return {
        probe.name: probe.us(partial(time_us, name=probe.name)) for probe in probes(ranks, machine, blocks)
    }


@pytest.mark.parametrize(
    ("ranks", "base", "machine"),
    [
        (2, cpu(2, 2), replace(cpu(2, 2), inside=SLOW, instruction_us=0.04, pull_bytes_per_us=4000.0)),
        (3, cpu(3, 8), replace(cpu(3, 8), inside=Link(0.03, 7000.0), signal_us=0.1, packet_bytes_per_us=900.0)),
        (4, cpu(4, 2), replace(cpu(4, 2), inside=SLOW, wait_us=2.5, reduce_bytes_per_us=2500.0)),
        (2, GPUS, replace(GPUS, inside=Link(1.5, 30000.0), instruction_us=0.7, signal_us=1.0)),
        (
            4,
            replace(GPUS, nodes_in_turn=2),
            replace(GPUS, nodes_in_turn=2, inside=Link(0.5, 40000.0), between=Link(2.0, 9000.0)),
        ),
    ],
    ids=["2", "3", "4_on_2_cores", "gpus", "4_on_2_gpus"],
)  # fmt: skip
def test_the_fit_finds_the_machine_that_was_timed(ranks: int, base: Machine, machine: Machine) -> None:
    blocks = 32 if base.pulls_cross_links else 1
    fit = fitted(base, ranks, timed_on(machine, 1500.0, ranks, blocks), blocks)
    for name in (
        "instruction_us", "copy_bytes_per_us", "reduce_bytes_per_us", "wait_us", "signal_us", "packet_bytes_per_us",
    ):  # fmt: skip
        assert getattr(fit.machine, name) == pytest.approx(getattr(machine, name), rel=0.05, abs=0.01), name
    assert fit.half.reduce_bytes_per_us == pytest.approx(1500.0, rel=0.05)
    for kind in ("inside", "between") if base.nodes_in_turn else ("inside",):
        found, right = getattr(fit.machine, kind), getattr(machine, kind)
        assert found.latency_us == pytest.approx(right.latency_us, rel=0.2), kind
        assert found.bytes_per_us == pytest.approx(right.bytes_per_us, rel=0.05), kind
    plan = ir.builtin("broadcast", "direct_pull", ranks, blocks=1)
    assert cost_us(plan, 1 << 20, fit.machine) == pytest.approx(cost_us(plan, 1 << 20, machine), rel=0.1)


def test_what_was_not_heard_stays() -> None:
    base = cpu(4, 2)
    assert fitted(base, 4, {}) == assumed(4, 2)
    alone = fitted(
        base, 4, {"reduce": 1.0, "inside.message_large": 2.0, "inside.packet_large": 1.0, "turn": 9.0}
    )
    assert alone.machine == base  # nothing that they could be compared with
    assert math.isinf(fitted(base, 4, {"pulled": 0.001}).machine.pull_bytes_per_us)


def test_noise_is_no_answer() -> None:
    assert heard([10.0, 10.1, 10.2], [18.0, 18.1, 18.4], 8) == 1.0
    assert heard([10.0] * 3, [10.00014] * 3, 14) == pytest.approx(1e-5)  # it is divided by
    assert heard([10.0, 19.0, 30.0], [18.0, 18.1, 18.4], 8) is None  # samples of one differ by more
    assert heard([10.0, 10.1, 10.2], [9.0, 9.1, 9.2], 8) is None
    assert heard([], [9.0], 8) is None and heard(None, [9.0], 8) is None


def first_by(machine: Machine) -> str:
    tuning = Tuning(["broadcast"], 2, [1 << 20], places=(False,), most=1, tiled=0, fit=Fit(machine, machine))
    (work,) = works_of(tuning)
    plan = work.candidates[0].plan
    assert plan is not None and work.candidates[1] == CHOICE
    return plan.protocol


def test_what_is_measured_goes_by_the_links() -> None:
    """Where slots are slow, what reads the peer's buffer; where reading is, slots."""
    slots_slow = replace(cpu(2, 2), inside=SLOW, copy_bytes_per_us=40000.0)
    assert first_by(slots_slow) == "pull"
    assert first_by(replace(slots_slow, inside=Link(0.03, 40000.0), pull_bytes_per_us=1000.0)) == "slots"


def test_halves_have_a_rate_of_their_own() -> None:
    """Where adding costs nothing, one message each; where it does, each rank adds a part."""
    plain = replace(cpu(2, 2), reduce_bytes_per_us=1e6, inside=Link(0.5, 1e5), copy_bytes_per_us=1e5)
    half = replace(plain, reduce_bytes_per_us=500.0)
    tuning = Tuning(["all_reduce"], 2, [4096], places=(False,), most=1, tiled=0, fit=Fit(plain, half))
    first = {work.point.types: work.candidates[0].name for work in works_of(tuning)}
    assert first["plain"].startswith("one_shot") and not first["half"].startswith("one_shot")


def test_the_winner_has_a_place_in_the_models_order() -> None:
    (a, b, c, *_) = candidates("all_reduce", 4, 1, False)
    work = Work(
        Point("all_reduce", False, "float32", 64), [a, b, c, CHOICE], {a.name: 2.0, b.name: 1.0, c.name: 3.0}
    )
    assert [place_in_model(work, one.name) for one in (a, b, c)] == [2, 1, 3]


Asked = list[tuple[list[float] | None, list[float] | None, int]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What was sampled for each probe, in turn; what is heard of it is its number, from 1."""
    found: Asked = []

    def numbered(first: list[float] | None, second: list[float] | None, steps: int) -> float:
        found.append((first, second, steps))
        return float(len(found))

    monkeypatch.setattr(calibrate, "heard", numbered)
    return found


@pytest.mark.parametrize(("ranks", "blocks"), [(1, 1), (3, 1), (2, 4)])
def test_ranks_run_every_probe(
    ranks: int, blocks: int, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However busy the machine is; a plan that is refused has no samples."""
    monkeypatch.setattr(calibrate, "MOST_US", math.inf)
    fit = calibrated(ranks, cores=2, blocks=blocks)
    wanted = probes(ranks, cpu(ranks, 2), blocks)
    assert fit.timed == {probe.name: number for number, probe in enumerate(wanted, 1)}
    for probe, (first, second, steps) in zip(wanted, asked, strict=True):
        assert first and second and min(*first, *second) > 0, probe.name
        assert len(first) == len(second) == calibrate.REPETITIONS and steps == probe.steps, probe.name


@pytest.mark.parametrize(("slow", "is_heard"), [(0, True), (1, True), (2, False)])
def test_one_slow_call_is_tried_again(
    slow: int, is_heard: bool, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one says that ranks wait for cores, and what follows is not tried."""
    slow_s = iter([1.0] * slow)
    monkeypatch.setattr(
        calibrate._core, "time_calls", lambda warmups, calls, steps: next(slow_s, 1e-6 * calls)
    )
    calibrated(1, cores=2)
    assert asked
    for first, second, _ in asked:
        assert (first, second) == ((pytest.approx([1.0] * 7),) * 2 if is_heard else ([], []))


def test_processes_are_timed() -> None:
    """On a busy machine less is heard, or nothing."""
    fit = calibrated(2, cores=2, processes=True)
    assert set(fit.timed) <= {probe.name for probe in probes(2, cpu(2, 2))}
    assert all(us > 0 for us in fit.timed.values())
