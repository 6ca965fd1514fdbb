"""Goal: what a collective of one's own must leave travels in its plan, and whoever loads the plan proves it.

Method: plans of custom programs, in one and several instances, written and read again; random changes to them are
accepted by the C++ verifier only if the interpreter agrees on random numbers; files of version 1 load and say so.
"""

import itertools
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from starling.plans import program

from ir.test_mutations import mutated
from starling import errors, ir, lang
from starling.ir.plan import Holding


class Turned(lang.Collective):
    """Rank r's output: chunk 0 the sum of all chunks 1, chunk 1 the next rank's chunk 0, chunk 2 anything."""

    def output_chunks(self) -> int:
        return 3

    def expected(self, rank: int, index: int) -> lang.Value | None:
        if index == 0:
            return lang.reduction((r, 1) for r in range(self.ranks))
        return lang.leaf((rank + 1) % self.ranks, 0) if index == 1 else None


def turned(ranks: int, instances: int = 1) -> lang.Program:
    made = lang.Program("turned", Turned(ranks, 2), instances=instances)
    for r in range(ranks):
        made.chunk((r + 1) % ranks, "input", 0).copy(r, "output", 1)
    total = made.chunk(0, "input", 1).copy(0, "scratch", 0)
    for r in range(1, ranks):
        total = made.chunk(r, "input", 1).copy(r, "scratch", 0).reduce(total)
    for r in range(ranks):
        total.copy(r, "output", 0)
    return made


def test_it_is_in_the_text() -> None:
    plan = turned(3).compile()
    assert plan.postcondition == tuple(
        holding
        for r in range(3)
        for holding in (Holding(r, 0, 1, ((None, 1),)), Holding(r, 1, 1, (((r + 1) % 3, 0),)))
    )
    text = ir.to_text(plan)
    assert text.startswith("starling-plan 2\n")
    assert "\nholds 1 output[0] *.1\nholds 1 output[1] 2.0\n" in text
    assert ir.parse(text) == plan
    assert ir.to_text(ir.parse(text)) == text


def test_pieces_of_instances_have_their_own() -> None:
    plan = turned(3, instances=2).compile()
    held = {h.chunk + k: [(r, c + k) for r, c in h.terms] for h in plan.postcondition or () if h.rank == 0
            for k in range(h.chunks)}  # fmt: skip
    assert held == {0: [(None, 2)], 1: [(None, 3)], 2: [(1, 0)], 3: [(1, 1)]}
    assert ir.verify(plan) <= 2


def test_standard_collectives_have_none() -> None:
    assert program("all_reduce", "ring", 3).compile().postcondition is None


def holds_what_it_says(plan: ir.Plan, slots: int, seed: int) -> bool:
    """By numbers, under a random schedule: each output chunk is the sum of its terms."""
    numbers = np.random.default_rng(seed)
    count = 4 * plan.chunks_per_group
    inputs = [
        numbers.integers(-(2**20), 2**20, count * plan.input_groups).astype(np.int32)
        for _ in range(plan.rank_count)
    ]
    outputs = ir.run(
        plan,
        inputs,
        counts=count,
        data_type="int32",
        slots=slots,
        tile_bytes=16,
        schedule=random.Random(seed),
    )
    for h in plan.postcondition or ():
        for k in range(h.chunks):
            terms = [
                (r, c + k)
                for rank, c in h.terms
                for r in (range(plan.rank_count) if rank is None else [rank])
            ]
            wanted = sum(inputs[r][4 * c : 4 * c + 4] for r, c in terms)
            found = outputs[h.rank][4 * (h.chunk + k) : 4 * (h.chunk + k) + 4]
            if not np.array_equal(found, wanted):
                return False
    return True


@pytest.mark.parametrize("instances", [1, 2])
def test_changed_plans_are_accepted_only_if_they_hold_it(instances: int) -> None:
    base = turned(3, instances).compile(blocks=1)
    first = random.SystemRandom().randrange(2**32)
    outcomes: Counter[str] = Counter()
    # At least 200, and until both outcomes that matter have come up.
    for seed in itertools.count(first):
        if seed - first >= 200 and outcomes["result"] and outcomes["right"]:
            return
        assert seed - first < 20_000, outcomes
        plan = mutated(base, seed)
        plan.postcondition = base.postcondition
        try:
            slots = ir.verify(plan)
        except errors.InvalidArgumentError as error:
            outcomes["result" if "rule postcondition)" in str(error) else "other"] += 1
            continue
        outcomes["right"] += 1
        assert holds_what_it_says(plan, slots, seed), f"seed {seed}\n{ir.to_text(plan)}"


def test_a_changed_postcondition_is_refused() -> None:
    text = ir.to_text(turned(3).compile())
    wrong = text.replace("holds 1 output[1] 2.0", "holds 1 output[1] 0.0")
    with pytest.raises(
        errors.InvalidArgumentError,
        match=r"rank 1: output\[1\] holds rank 2 input\[0\]; it should hold rank 0 input\[0\]",
    ):
        ir.verify(ir.parse(wrong))


def command(path: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "starling.cli", "verify", str(path)]
    return subprocess.run(words, capture_output=True, text=True, timeout=200, check=False)


def test_files_of_version_one_load_and_are_told(tmp_path: Path) -> None:
    text = ir.to_text(turned(3).compile())
    old = "\n".join(line for line in text.splitlines() if not line.startswith("holds")) + "\n"
    old = old.replace("starling-plan 2", "starling-plan 1")
    assert ir.parse(old).postcondition is None
    path = tmp_path / "turned.plan"
    path.write_text(old)
    told = command(path)
    assert told.returncode == 0, told.stderr
    assert "what its outputs must hold was not proved" in told.stdout
    path.write_text(text)
    assert "not proved" not in command(path).stdout
    path.write_text(text.replace("holds 0 output[1] 1.0", "holds 0 output[1] 2.0"))
    told = command(path)
    assert told.returncode == 1
    assert "output[1] holds rank 1 input[0]; it should hold rank 2 input[0]" in told.stderr
