"""Goal: the cost model ranks plans as theory does, and tuning gives a table that ranks can use.

Method: small cases whose answer is known (a step more costs a latency; between nodes, fewer and larger messages win);
boundaries of made-up times; a short tuning of two collectives, loaded by ranks that then choose by it.
"""

import itertools
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from starling.plans import program
from typer.testing import CliRunner

from starling import Communicator, ir
from starling.lang.source import program_of
from starling.launch import run_threads
from starling.tune import Link, Machine, Table, cost_us, timeline
from starling.tune.command import app
from starling.tune.measure import candidates, tune
from starling.tune.table import ranges

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


def test_boundaries_have_no_gaps_and_do_not_flutter() -> None:
    measured = [
        (64, {"a": 1.0, "b": 2.0}),
        (512, {"a": 2.01, "b": 2.0}),
        (4096, {"a": 9.0, "b": 4.0}),
        (32768, {"b": 20.0, "c": 10.0}),
    ]
    assert ranges(measured) == [(1, 512, "a"), (513, 4096, "b"), (4097, 32768, "c")]


def test_no_plan_is_measured_twice() -> None:
    texts = [ir.to_text(c.plan).split("\n", 2)[2] for c in candidates("all_reduce", 4, 2, False)]
    assert len(texts) == len(set(texts)) > 6


def use(comm: Communicator, path: str) -> int:
    table = Table.load(path)
    added = table.add_to(comm)
    for count in (1, 100, 3000, 40000):
        data = np.full(count, comm.rank + 1, np.float32)
        out = np.zeros_like(data)
        comm.all_reduce(data, out).wait(30)
        assert np.all(out == comm.size * (comm.size + 1) / 2)
    return added


def test_tuned_tables_are_used(tmp_path: Path) -> None:
    lines: list[str] = []
    table = tune(
        ["all_reduce", "all_to_all"], 3, [64, 4096, 65536], most=3, repetitions=3, report=lines.append
    )
    assert len(lines) == len(table.rows)
    path = tmp_path / "table.json"
    table.save(path)
    assert Table.load(path) == table
    for collective in ("all_reduce", "all_to_all"):
        rows = [row for row in table.rows if row.collective == collective]
        assert rows[0].smallest_bytes == 1 and rows[-1].largest_bytes == 65536
        for one, two in itertools.pairwise(rows):
            assert two.smallest_bytes == one.largest_bytes + 1
    added = run_threads(3, partial(use, path=str(path)), timeout=60)
    assert added == [len(table.rows)] * 3
    assert run_threads(2, partial(use, path=str(path)), timeout=60) == [
        0,
        0,
    ]  # other ranks: the library's choice


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
    source, table = tmp_path / "own.py", tmp_path / "table.json"
    source.write_text(OWN)
    few = ("-b", "64", "-e", "512", "--most", "1", "--repetitions", "2", "-o", str(table))
    code, output = command(str(source), "-n", "3", *few)
    assert code == 0, output
    times = [line for line in output.splitlines() if " at " in line]
    assert [line.split()[:5] for line in times] == [
        ["all_reduce", "at", size, "B", "own"] for size in ("64", "512")
    ]
    assert {row.collective for row in Table.load(table).rows} == {"all_reduce"}


def test_what_cannot_take_part_is_refused(tmp_path: Path) -> None:
    source, plan = tmp_path / "own.py", tmp_path / "plan.txt"
    source.write_text(OWN)
    table = ("-o", str(tmp_path / "table.json"))
    for options, words, expected in (
        ({"ranks": 3}, ("-n", "2"), "is for 3 ranks, not 2"),
        ({"ranks": 2, "in_place": True}, ("-n", "2"), "is in place"),
        ({"ranks": 2}, (str(source), "-n", "2"), "has the name of another one"),
    ):
        plan.write_text(ir.to_text(program_of(str(source), options=options).compile()))
        code, output = command(str(plan), *words, *table)
        assert code == 2 and expected in output, output
    for words, expected in (
        (("-C", "barrier"), "cannot tune barrier"),
        (("-n", "0"), "--ranks"),
        (("--repetitions", "0"), "--repetitions"),
        (("-o", str(tmp_path / "absent" / "table.json")), "there is no folder"),
    ):
        code, output = command(*words)
        assert code == 2 and expected in output, output
