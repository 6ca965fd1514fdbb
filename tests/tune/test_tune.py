"""Goal: the cost model ranks plans as theory does, and tuning gives a table that ranks can use.

Method: small cases whose answer is known (a step more costs a latency; between nodes, fewer and larger messages win);
boundaries of made-up times; a short tuning of two collectives, loaded by ranks that then choose by it.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from starling.plans import program
from typer.testing import CliRunner

from starling import Communicator, Request, _core, ir
from starling.lang.source import program_of
from starling.launch import RanksFailedError, run_processes, run_threads
from starling.numbers import COLLECTIVES as NUMBERS
from starling.tune import Link, Machine, Table, cost_us, timeline
from starling.tune.candidates import COLLECTIVES, ROOTED, Candidate, candidates
from starling.tune.command import app
from starling.tune.measure import Buffers, Effort, Point, Work, _Rank, measured
from starling.tune.model import CPU, GPUS
from starling.tune.table import Row, parse, ranges
from starling.tune.tuning import Tuning, tune, works_of

FLAT = Machine(inside=Link(1.0, 1e4), instruction_us=0.1, copy_bytes_per_us=1e5, reduce_bytes_per_us=1e5)
NODES = Machine(
    inside=Link(0.5, 1e5), between=Link(5.0, 5e3, 1.0), ranks_per_node=4, copy_bytes_per_us=1e5,
    reduce_bytes_per_us=1e5,
)  # fmt: skip


def test_small_messages_cost_their_steps() -> None:
    one = cost_us(ir.builtin("all_reduce", "one_shot", 8), 64, FLAT)
    two = cost_us(ir.builtin("all_reduce", "two_shot", 8), 64, FLAT)
    ring = cost_us(ir.builtin("all_reduce", "ring", 8), 64, FLAT)
    assert one < two < ring
    assert 1.0 < one < 2.0
    assert 14.0 < ring < 18.0  # 14 steps of a latency and an instruction


def test_large_messages_cost_their_bytes() -> None:
    size = 1 << 24
    one = cost_us(ir.builtin("all_reduce", "one_shot", 8), size, FLAT)
    ring = cost_us(ir.builtin("all_reduce", "ring", 8), size, FLAT)
    assert ring < one
    assert ring == pytest.approx(2 * 7 / 8 * size / 1e4, rel=0.25)  # every rank sends 14 of 8 parts


def test_few_large_messages_between_nodes_beat_many_small_ones() -> None:
    two_step = program("all_to_all", "two_step", 16, nodes=4).compile()
    direct = program("all_to_all", "direct", 16).compile()
    assert cost_us(two_step, 16, NODES) < cost_us(direct, 16, NODES)
    spread = program("all_to_next", "spread", 8, nodes=2).compile()
    straight = program("all_to_next", "direct", 8).compile()
    ports = Machine(
        inside=Link(0.5, 1e5),
        between=Link(5.0, 5e3),
        ranks_per_node=4,
        copy_bytes_per_us=1e5,
        reduce_bytes_per_us=1e5,
    )
    assert cost_us(spread, 1 << 22, ports) < 0.5 * cost_us(straight, 1 << 22, ports)


def test_hierarchy_pays_where_links_differ() -> None:
    made = program("all_reduce", "hierarchical", 16, nodes=4).compile()
    ring = program("all_reduce", "ring", 16).compile()
    assert cost_us(made, 4096, NODES) < cost_us(ring, 4096, NODES)


def test_long_operations_go_on_at_their_pace() -> None:
    plan = ir.builtin("all_reduce", "ring", 4)
    exact = max(span.end_us for span in timeline(plan, 64 * 65536 * 4, FLAT))
    assert cost_us(plan, 64 * 65536 * 4, FLAT) == pytest.approx(exact, rel=0.02)


def test_no_two_instructions_of_a_block_at_once() -> None:
    ends: dict[tuple[int, int], float] = {}
    for span in timeline(program("all_reduce", "hierarchical", 4).compile(), 1 << 18, FLAT):
        assert span.begin_us >= ends.get((span.rank, span.block), 0.0)
        ends[span.rank, span.block] = span.end_us


def test_addresses_cost_no_bytes() -> None:
    slots = cost_us(ir.builtin("all_gather", "all_pairs", 4), 1 << 18, FLAT)
    pulled = cost_us(ir.builtin("all_gather", "all_pairs_pull", 4), 1 << 18, FLAT)
    assert pulled < 0.5 * slots


def test_a_protocol_costs_what_its_messages_cost() -> None:
    """On GPUs packets for small buffers, for the largest what reads the peer's; on CPUs packets are never worth it."""
    best = {}
    for bytes_ in (64, 1 << 16, 1 << 26):
        times = {
            (name, blocks): cost_us(ir.builtin("all_reduce", name, 2, blocks=blocks), bytes_, GPUS)
            for name in ("one_shot", "one_shot_packets", "two_shot", "two_shot_pull")
            for blocks in (1, 8, 32)
        }
        best[bytes_] = min(times, key=times.__getitem__)
    assert best == {
        64: ("one_shot_packets", 1),
        1 << 16: ("one_shot_packets", 32),
        1 << 26: ("two_shot_pull", 32),
    }
    for bytes_ in (64, 4096):
        slots, packets = (
            cost_us(ir.builtin("all_reduce", name, 2), bytes_, CPU)
            for name in ("one_shot", "one_shot_packets")
        )
        assert slots < packets


def test_pulled_bytes_cross_the_link_between_gpus() -> None:
    plan = ir.builtin("all_gather", "all_pairs_pull", 2, blocks=64)
    bytes_ = 1 << 28
    assert cost_us(plan, bytes_, GPUS) > bytes_ / GPUS.inside.bytes_per_us
    near = replace(GPUS, pulls_cross_links=False)
    assert cost_us(plan, bytes_, near) < bytes_ / GPUS.inside.bytes_per_us


def test_on_gpus_protocols_and_numbers_of_blocks_take_part(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {c.name: c for c in candidates("all_reduce", 2, 32, False, False, True)}
    assert {"one_shot_packets-1", "one_shot_packets-8", "two_shot_pull-32"} <= set(found)
    assert any("-program-pull-" in name for name in found)
    assert found["one_shot_packets-8"].built_in == ("one_shot_packets", 8)
    assert found["two_shot_pull-32"].built_in is None and found["two_shot_pull-32"].blocks == 32
    assert {c.name for c in candidates("all_reduce", 2, 32, False, True, True)} == set(
        found
    )  # processes, too
    monkeypatch.setenv("STARLING_PULL", "0")
    between = candidates("all_reduce", 2, 32, False, True, True)
    assert between and not any(c.plan and c.plan.protocol == "pull" for c in between)


def take_all(comm: Communicator) -> int:
    texts = [
        c.text
        for collective in COLLECTIVES
        for c in candidates(collective, comm.size, comm.context.blocks, False, False, True)
        if c.text
    ]
    for text in texts:
        comm.add_plan(text)
    return len(texts)


def test_what_takes_part_on_gpus_can_be_added() -> None:
    counts = run_threads(2, take_all, context={"blocks": 8}, timeout=100)
    assert counts[0] == counts[1] > 80


def test_boundaries_have_no_gaps_and_do_not_flutter() -> None:
    measured = [
        (64, {"a": 1.0, "b": 2.0}),
        (512, {"a": 2.01, "b": 2.0}),
        (2048, {"a": 9.0, "b": 4.0}),
        (32768, {"b": 20.0, "c": 10.0}),
    ]
    assert ranges(measured) == [(1024, "a", 512), (8192, "b", 2048), (32768, "c", 32768)]


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_no_plan_is_measured_twice(collective: str) -> None:
    for in_place in (False, True):
        found = candidates(collective, 4, 2, in_place)
        texts = [ir.to_text(c.plan).split("\n", 2)[2] for c in found if c.plan]
        assert len(texts) == len(set(texts)) == len(found) >= 2
        assert len({c.name for c in found}) == len(found)


def test_a_table_is_what_was_written() -> None:
    table = Table(
        [
            Row("here", "all_reduce", False, "plain", 64, "ring", 2, 3.5),
            Row("here", "all_reduce", False, "half", 64, "mine", 0),
            Row("there", "broadcast", False, "moved", 4096, "direct", 1, 12.25),
        ],
        {"mine": "starling-plan 1\nname x\n"},
    )
    assert parse(table.text()) == table
    newer = Table([Row("here", "all_reduce", False, "half", 128, "ring", 1)])
    table.update(newer)
    assert [row.largest_bytes for row in table.rows] == [64, 4096, 128]
    assert table.plans == {}  # nobody needs it any more
    for wrong in ("to 64 all_reduce separate plain built_in ring 1", "| x", "row"):
        with pytest.raises(ValueError, match="line 2"):
            parse(f"starling-table 1\n{wrong}\n")
    with pytest.raises(ValueError, match="version"):
        parse('{"version": 1}')


def measured_rank(comm: Communicator, path: str) -> tuple[str, int]:
    """Everything that was tuned, at sizes around the boundaries, by the table."""
    rows = comm.use_table(path)
    for point in (
        Point(collective, in_place, dtype, size)
        for collective in COLLECTIVES
        for in_place in (False, True)
        for dtype in ("float32", "float16")
        for size in (64, 600, 8000, 100000)
        if not (in_place and collective in ROOTED)
    ):
        buffers = Buffers(point, comm.rank, comm.size)
        buffers.renew()
        given, result = buffers.arguments()
        _core.time_calls(0, 1, [_core.Step(comm._core, NUMBERS[point.collective], given, result)])
        assert buffers.right(comm.rank), point
    return comm.topology, rows


@pytest.mark.parametrize("processes", [False, True], ids=["threads", "processes"])
def test_tuned_tables_are_used(tmp_path: Path, processes: bool) -> None:
    tuning = Tuning(
        list(COLLECTIVES), 3, [64, 32768], processes=processes, most=2, tiled=1, effort=Effort(2, 0.0001)
    )
    seen: list[int] = []
    works = works_of(tuning)
    result = tune(tuning, works, seen.append)
    assert sum(seen) == len(works) == len(result.points)
    table = result.table
    assert len(table.topologies()) == 1
    kinds = {row.key()[1:] for row in table.rows}
    assert len(kinds) == 17  # reductions by type and place, others by place, rooted ones in one place only
    for kind in kinds:
        sizes = [row.largest_bytes for row in table.rows if row.key()[1:] == kind]
        assert sizes == sorted(set(sizes)) and sizes[-1] == 32768
    assert any("@" in name for point in result.points for name in point["us"])
    path = tmp_path / "table.txt"
    table.save(path)
    assert Table.load(path) == table
    launch = run_processes if processes else run_threads
    use = partial(measured_rank, path=str(path))
    assert launch(3, use, timeout=200) == [(table.topologies()[0], len(table.rows))] * 3
    assert [rows for _, rows in launch(2, use, timeout=200)] == [0, 0]  # others: the library's choice


def instructions(comm: Communicator, run: Callable[[], Request]) -> int:
    before = comm.context.statistics().instructions
    run().wait(30)
    return comm.context.statistics().instructions - before


def following(comm: Communicator, folder: Path) -> list[int]:
    """Instructions of one call again and again, with no table, one, and another one."""
    data, out = np.ones(64, np.float32), np.empty(64, np.float32)
    found = []
    for algorithm in ("", "ring", "one_shot"):
        if algorithm:
            path = folder / f"{algorithm}.{comm.rank}"
            row = f"  to 4096 all_reduce separate plain built_in {algorithm} 1"
            path.write_text(f"starling-table 1\ntopology {comm.topology}\n{row}\n")
            assert comm.use_table(str(path)) == 1
        found += [instructions(comm, lambda: comm.all_reduce(data, out)) for _ in range(2)]
        assert np.all(out == comm.size)
    return found


def test_what_was_chosen_before_a_table_does_not_stay(tmp_path: Path) -> None:
    for counts in run_threads(3, partial(following, folder=tmp_path), timeout=100):
        one_shot, ring = counts[0], counts[2]
        assert ring > one_shot and counts == [one_shot, one_shot, ring, ring, one_shot, one_shot]


def unequal(comm: Communicator, folder: Path, by_name: bool) -> None:
    """A table's plan for equal parts was chosen; parts that differ, which count as 256 KiB, do not get it."""
    path = folder / f"table.{comm.rank}"
    text = ir.to_text(ir.builtin("all_to_all", "two_step", comm.size))
    names = (
        ["built_in two_step 1"]
        if by_name
        else ["plan mine", "plan mine", *(f"| {line}" for line in text.splitlines())]
    )
    row = f"  to 1048576 all_to_all separate moved {names[0]}"
    path.write_text("\n".join(["starling-table 1", f"topology {comm.topology}", row, *names[1:], ""]))
    assert comm.use_table(str(path)) == 1
    part = 65536 // comm.size
    data, out = np.full(65536, comm.rank, np.float32), np.empty(65536, np.float32)
    comm.all_to_all(data, out).wait(30)
    assert np.array_equal(out, np.arange(comm.size, dtype=np.float32).repeat(part))
    counts = [part + 1 if comm.rank != r else part - comm.size + 1 for r in range(comm.size)]
    comm.all_to_all(data, out, input_counts=counts, output_counts=counts).wait(30)
    assert np.array_equal(out, np.arange(comm.size, dtype=np.float32).repeat(counts))


@pytest.mark.parametrize("by_name", [False, True])
def test_a_plan_for_equal_parts_is_not_taken_for_others(tmp_path: Path, by_name: bool) -> None:
    run_threads(4, partial(unequal, folder=tmp_path, by_name=by_name), timeout=100)


def topology_of(comm: Communicator) -> str:
    return comm.topology


def test_the_setting_reaches_every_communicator(tmp_path: Path) -> None:
    here = run_processes(2, topology_of, timeout=200)[0]
    assert here.startswith("cpu:processes:ranks=2:per_host=2:blocks=1:cores=")
    path = tmp_path / "table.txt"
    environment = {"STARLING_TABLE": str(path)}
    with pytest.raises(RanksFailedError, match="cannot be read"):
        run_processes(2, topology_of, timeout=200, environment=environment)
    row = "  to 64 all_reduce separate plain built_in nonesuch 1\n"
    path.write_text(f"starling-table 1\ntopology {here}\n{row}")
    with pytest.raises(RanksFailedError, match="line 3: all_reduce over 2 ranks has no algorithm 'nonesuch'"):
        run_processes(2, topology_of, timeout=200, environment=environment)
    path.write_text(f"starling-table 1\ntopology {here}0\n{row}")  # not ours: nobody asks
    assert run_processes(2, topology_of, timeout=200, environment=environment) == [here] * 2


def test_a_wrong_plan_is_found_out() -> None:
    point = Point("all_reduce", False, "float32", 256)
    scatter = Candidate("no_all_reduce", "nonesuch")
    with pytest.raises(RanksFailedError, match="has no algorithm 'nonesuch'"):
        measured([Work(point, [scatter])], 2, effort=Effort(1, 0.0001))
    for collective in COLLECTIVES:
        buffers = Buffers(Point(collective, False, "float16", 60), 0, 3)
        buffers.renew()
        assert not buffers.right(0)


OWN = """
from starling.lang import AllReduce, Program

def program(ranks, in_place=False, name="own"):
    made = Program(name, AllReduce(ranks, in_place=in_place))
    for rank in range(1, ranks):
        total = made.chunk(0, "input", 0).reduce(made.chunk(rank, "input", 0))
    for rank in range(0 if not in_place else 1, ranks):
        total.copy(rank, "output", 0)
    return made
"""


def command(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(words))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_programs_of_one_s_own_take_part(tmp_path: Path) -> None:
    source, table = tmp_path / "own.py", tmp_path / "table.txt"
    source.write_text(OWN)
    few = (
        "-b",
        "64",
        "-e",
        "512",
        "-f",
        "8",
        "--most",
        "1",
        "--repetitions",
        "2",
        "--finals",
        "2",
        "--slice-ms",
        "0.1",
    )
    code, output = command(str(source), "-n", "3", "--as", "threads", *few, "-o", str(table))
    assert code == 0, output
    assert {row.collective for row in Table.load(table).rows} == {"all_reduce"}
    assert "the cost model's machine" in output and "the cost model had the winner first at" in output
    code, output = command(
        str(source),
        "-n",
        "2",
        "--as",
        "threads",
        *few,
        "-o",
        str(table),
        "--json",
        "-",
        "--dtypes",
        "float32",
    )
    assert code == 0, output
    document = json.loads(output)  # and nothing else on standard output
    (settings,) = document["settings"]["plans"]
    assert settings["fit"]["machine"].startswith("Machine(") and "timed_us" in settings["fit"]
    points = document["rows"]
    for point in points:
        modelled = point["model_us"]
        assert set(modelled) == set(point["us"]) - {"choice"}
        assert point["winners_place"] == 1 + sum(us < modelled[point["winner"]] for us in modelled.values())
    assert [point["size_bytes"] for point in points if not point["in_place"]] == [64, 512]
    assert all(("own" in point["us"]) != point["in_place"] for point in points)
    assert [name.split(":")[2] for name in Table.load(table).topologies()] == ["ranks=3", "ranks=2"]


def test_the_fastest_is_put_into_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    tuning = Tuning(["all_reduce"], 2, [64, 256], places=(False,), dtypes=("float32",), most=1)
    own = program("all_reduce", "halving_doubling", 2).compile()
    own.name = "own"
    works = works_of(tuning, [own])
    names = [candidate.name for candidate in works[0].candidates]
    assert names[1:] == ["own", "choice"]
    times = {names[0]: [2.0, 9.0, 9.0], "own": [1.0, 3.0, 2.0], "choice": [0.5, 0.5, 0.5]}
    other = {**times, names[0]: [1.0, 1.0, 1.0]}
    monkeypatch.setattr("starling.tune.tuning.measured", lambda *_, **__: ("here", [times, other]))
    result = tune(tuning, works)
    table = result.table
    assert [point["winner"] for point in result.points] == ["own", names[0]]
    digest = hashlib.sha256(works[0].candidates[1].text.encode()).hexdigest()[:8]
    assert [(row.largest_bytes, row.algorithm, row.time_us) for row in table.rows] == [
        (128, f"own.{digest}", 2.0),
        (256, works[0].candidates[0].algorithm, 1.0),
    ]
    assert table.plans == {f"own.{digest}": works[0].candidates[1].text}


@pytest.mark.parametrize(
    ("thirds_us", "winners_us"),
    [(9.0, 2.45), (2.5, 1.58)],  # the second: 2 and 3; the first has 1 and 8, the third these and 1
)
def test_launches_have_to_agree(thirds_us: float, winners_us: float, monkeypatch: pytest.MonkeyPatch) -> None:
    tuning = Tuning(["all_reduce"], 2, [64], places=(False,), dtypes=("float32",), most=3, launches=2)
    works = works_of(tuning)
    first, second, third, choice = (candidate.name for candidate in works[0].candidates)
    launches = iter(
        [
            {first: [1.0] * 4, second: [2.0] * 4, third: [thirds_us], choice: [3.0] * 4},
            {first: [8.0] * 4, second: [3.0] * 4, third: [1.0] * 4, choice: [3.0] * 4},
        ]
    )
    monkeypatch.setattr("starling.tune.tuning.measured", lambda *_, **__: ("here", [next(launches)]))
    result = tune(tuning, works)
    assert [row.time_us for row in result.table.rows] == [winners_us]
    assert result.points[0]["us"][third] == round(thirds_us**0.5, 3)  # in the finals of one launch


def test_of_plans_as_fast_the_steady_one_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    tuning = Tuning(["all_reduce"], 2, [64], places=(False,), dtypes=("float32",), most=3, tiled=0)
    works = works_of(tuning)
    first, second, third, choice = (candidate.name for candidate in works[0].candidates)
    for steady, winners_us in ((1.02, 1.02), (1.04, 1.0)):
        samples = {
            first: [1.0, 1.0, 1.0, 5.0, 5.0],
            second: [steady] * 5,
            third: [1.1] * 5,
            choice: [1.0] * 5,
        }
        monkeypatch.setattr(
            "starling.tune.tuning.measured", lambda *_, found=samples, **__: ("here", [found])
        )
        assert [row.time_us for row in tune(tuning, works).table.rows] == [winners_us]


def test_samples_are_spread_over_the_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    timed = _Rank.time_us

    def time_us(rank: _Rank, candidate: Candidate, buffers: Buffers, calls: int, warmups: int = 1) -> float:
        size = buffers.point.size_bytes
        if rank.comm.rank == 0 and seen[-1:] != [size]:
            seen.append(size)
        return timed(rank, candidate, buffers, calls, warmups)

    monkeypatch.setattr(_Rank, "time_us", time_us)
    tuning = Tuning(["gather"], 2, [64, 512], places=(False,), most=2, tiled=0)
    visits: list[int] = []
    _, found = measured(
        works_of(tuning), 2, effort=Effort(2, 0.0001, finals=5, visits=3, near=1e9), progress=visits.append
    )
    assert seen == [64, 512] * 5 and sum(visits) == 10
    assert all(len(values) == 5 for samples in found for values in samples.values())


def test_what_cannot_take_part_is_refused(tmp_path: Path) -> None:
    source, plan = tmp_path / "own.py", tmp_path / "plan.txt"
    source.write_text(OWN)
    table = ("-o", str(tmp_path / "table.txt"))
    for ranks, words, expected in (
        (3, ("-n", "2"), "is for 3 ranks, not 2"),
        (2, (str(source), "-n", "2"), "has the name of another one"),
    ):
        plan.write_text(ir.to_text(program_of(str(source), options={"ranks": ranks}).compile()))
        code, output = command(str(plan), *words, *table)
        assert code == 2 and expected in output, output
    (tmp_path / "old.json").write_text("{}")
    (tmp_path / "old.bin").write_bytes(b"\xff\xce")
    for words, expected in (
        (("-C", "barrier"), "cannot tune barrier"),
        (("--as", "fibers"), "cannot tune ranks as fibers"),
        (("-n", "0"), "--ranks"),
        (("--repetitions", "0"), "--repetitions"),
        (("-o", str(tmp_path / "absent" / "table.txt")), "there is no folder"),
        (("-o", str(tmp_path / "old.json")), "is no table of choices"),
        (("-o", str(tmp_path / "old.bin")), "old.bin is no table of choices"),
        (("--begin", "8", "--end", "4"), "no size is between --begin 8 and --end 4"),
    ):
        code, output = command(*table, *words)
        assert code == 2 and expected in output, output
