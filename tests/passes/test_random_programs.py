"""Goal: whatever a program says is what its plan does, and the verifier's verdict is what happens.

Method: random programs (counts, channels, fragments, instances, aliasing, scratch) whose postcondition is what they
come to; an evaluator that knows nothing of the compiler runs the trace, operation by operation, on numpy arrays; the
compiled plan is proved and interpreted under random schedules with as few slots as the verifier says. Then random
changes to compiled plans: what is accepted must be right, and what is refused must be wrong (ir/witness.py).
"""

import random
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starling.plans import program as plan_program

from ir.test_mutations import mutated, outcome, seeds
from ir.witness import SOMETIMES
from starling import ir
from starling.lang import Collective, Program, ProgramError, Value
from starling.lang.program import first_addresses

SETTINGS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=200)


class Whatever(Collective):
    """What a random program comes to."""

    def __init__(self, ranks: int, chunks: int, outputs: int, in_place: bool) -> None:
        super().__init__(ranks, chunks, in_place=in_place)
        self._outputs = outputs
        self.wanted: dict[tuple[int, int], Value] = {}

    def output_chunks(self) -> int:
        return self._outputs

    def expected(self, rank: int, index: int) -> Value | None:
        return self.wanted.get((rank, index))


@st.composite
def programs(draw: st.DrawFn) -> Program:
    source = random.Random(draw(st.integers(0, 2**32)))
    collective = Whatever(
        source.randint(1, 4), source.randint(1, 4), source.randint(1, 4), source.random() < 0.4
    )
    made = Program("random", collective, instances=source.randint(1, 3))
    for _ in range(draw(st.integers(1, 16))):
        with made.parallelize(source.choice([1, 1, 1, 2, 3])):
            try:
                step(made, source)
            except ProgramError:
                continue  # the language refuses it: stale, uninitialised, overlapping, out of bounds
    for rank in range(collective.ranks):
        for index in range(collective.chunks_of("output", rank)):
            value = made.value(rank, "output", index)
            if value is not None and source.random() < 0.9:
                collective.wanted[rank, index] = value
    return made


def step(made: Program, source: random.Random) -> None:
    ranks = made.collective.ranks
    count = source.choice([1, 1, 1, 2, 3])

    def place() -> tuple[int, str, int]:
        return source.randrange(ranks), source.choice(["input", "output", "scratch"]), source.randrange(4)

    c = made.chunk(*place(), count)
    options = {"ch": source.choice([None, None, 0, 1])}
    if source.random() < 0.5:
        c.copy(*place(), **options)
    else:
        made.chunk(*place(), count).reduce(c, **options)


def evaluate(made: Program, inputs: list[np.ndarray], chunk: int) -> list[dict[int, np.ndarray]]:
    """The trace in its own order, on one array for each chunk of memory."""
    memory: list[dict[int, np.ndarray]] = []
    begins = first_addresses(made.collective)
    for rank, values in enumerate(inputs):
        first = begins[rank]["input"]
        memory.append({first + k: values[k * chunk : (k + 1) * chunk] for k in range(len(values) // chunk)})
    for operation in made.operations:
        source, target = operation.source, operation.destination
        at = begins[source.rank][source.buffer] + source.index
        to = begins[target.rank][target.buffer] + target.index
        moved = [memory[source.rank][at + k] for k in range(source.count)]
        for k, values in enumerate(moved):
            old = memory[target.rank].get(to + k)
            memory[target.rank][to + k] = values if operation.kind == "copy" or old is None else old + values
    return memory


@SETTINGS
@given(
    programs(),
    st.sampled_from(["channels", "connections", "one block"]),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_a_plan_does_what_its_program_says(made: Program, policy: str, fusion: bool, seed: int) -> None:
    one = policy == "one block"
    plan = made.compile(policy="channels" if one else policy, blocks=1 if one else None, fusion=fusion)
    slots = ir.verify(plan)
    collective = made.collective
    pieces = plan.chunks_per_group * plan.input_groups // collective.input_chunks()
    chunk = 4 * pieces
    count = chunk * collective.input_chunks() // plan.input_groups
    numbers = np.random.default_rng(seed)
    inputs = [
        numbers.integers(-50, 50, chunk * collective.input_chunks()).astype(np.int32)
        for _ in range(collective.ranks)
    ]
    begins = first_addresses(collective)
    memory = evaluate(made, inputs, chunk)
    outputs = ir.run(
        plan,
        inputs,
        counts=count,
        data_type="int32",
        slots=slots,
        tile_bytes=16,
        schedule=random.Random(seed),
    )
    for (rank, index), value in collective.wanted.items():
        wanted = memory[rank][begins[rank]["output"] + index]
        is_ = outputs[rank][index * chunk : (index + 1) * chunk]
        story = "\n".join(map(str, made.operations))
        np.testing.assert_array_equal(
            is_, wanted, err_msg=f"rank {rank} output[{index}], {value}\n{story}\n{ir.to_text(plan)}"
        )


COMPILED = [
    ("all_reduce", "hierarchical", 4),
    ("all_reduce", "halving_doubling", 4),
    ("all_to_all", "two_step", 4),
    ("reduce_scatter", "all_pairs", 3),
]


def changed(collective: str, name: str, ranks: int, known: int, new: int) -> Iterator[tuple[int, ir.Plan]]:
    base = plan_program(collective, name, ranks).compile()
    for seed in seeds(known, new):
        plan = mutated(base, seed)
        for rank, original in zip(plan.ranks, base.ranks, strict=True):
            rank.scratch_chunks = original.scratch_chunks + 2
        yield seed, plan


@pytest.mark.parametrize(("collective", "name", "ranks"), COMPILED)
def test_the_verdict_on_changed_plans_is_what_happens(collective: str, name: str, ranks: int) -> None:
    outcomes: Counter[str] = Counter()
    for seed, plan in changed(collective, name, ranks, 75, 75):
        found = outcome(plan, seed)
        if seed < 75:
            outcomes[found] += 1
    assert outcomes["accepted"] > 0 and 75 - outcomes["accepted"] > 15, outcomes


def test_refusals_of_every_kind_show() -> None:
    """In known plans, so that they can be counted. What has no witness is refused to be on the safe side: a race of two
    instructions that write the same, or what nobody reads; a sum that is finished twice where nobody looks."""
    outcomes: Counter[str] = Counter()
    for case in COMPILED:
        for seed, plan in changed(*case, 250, 0):
            outcomes[outcome(plan, seed)] += 1
    assert outcomes["race with two results"] > 9 * (1 + outcomes["race, seen"]), outcomes
    for rule in ("deadlock", "uninitialised", "postcondition", "final_missing"):
        assert outcomes[f"{rule}, seen"] > 0, outcomes
    for rule in SOMETIMES:
        assert outcomes[f"{rule}, seen"] >= 9 * outcomes[f"{rule}, not seen"], outcomes
