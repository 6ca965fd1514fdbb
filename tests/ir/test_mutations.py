"""Goal: the verifier lets no wrong plan through, and refuses no right one.

Method: a few random changes to a good plan; if the verifier still accepts it, the interpreter, which knows nothing
of the verifier, must find it right: for several counts and tiles, and for counts of each rank's own where the verifier
allows them, under random schedules, with as few slots as the verifier says, and stuck with one less. If the verifier
refuses it, what the refusal says must show when the plan is run (ir/witness.py). How many changed plans came out how is
checked too, so that no side is empty.
"""

import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from starling.plans import program

from ir.oracle import assert_right, make_case
from ir.witness import ALWAYS, deadlocks, evidence, race_changes_results
from starling import errors, ir
from starling.ir.plan import REDUCING
from starling.lang import AllGather, AllToAll, Program

VARYING = {
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "gather",
    "scatter",
}  # take counts of each rank's own


def relayed_all_to_all() -> ir.Plan:
    """Every chunk lies in scratch of its sender, and then of its receiver."""
    made = Program("relayed", AllToAll(2, 2))
    for rank, step in itertools.product(range(2), range(2)):
        peer = (rank + step) % 2
        aside = made.chunk(rank, "input", 2 * peer, 2).copy(rank, "scratch", 2 * peer)
        aside.copy(peer, "scratch", 4 + 2 * rank).copy(peer, "output", 2 * rank)
    return made.compile(fusion=False)


def relayed_all_gather() -> ir.Plan:
    """Each rank's part goes round through scratch, and from there into the output."""
    made = Program("relayed", AllGather(3, 2))
    for rank in range(3):
        part = made.chunk(rank, "input", 0, 2).copy(rank, "scratch", 2 * rank)
        part.copy(rank, "output", 2 * rank)
        for step in range(1, 3):
            peer = (rank + step) % 3
            part = part.copy(peer, "scratch", 2 * rank)
            part.copy(peer, "output", 2 * rank)
    return made.compile(fusion=False)


def built_in(collective: str, algorithm: str, ranks: int, in_place: bool) -> ir.Plan:
    return ir.builtin(collective, algorithm, ranks, blocks=2, in_place=in_place)


PLANS: dict[str, Callable[[], ir.Plan]] = {
    "all_reduce-ring": partial(built_in, "all_reduce", "ring", 3, False),
    "all_reduce-two_shot": partial(built_in, "all_reduce", "two_shot", 3, True),
    "all_reduce-one_shot": partial(built_in, "all_reduce", "one_shot", 4, True),
    "all_gather-ring": partial(built_in, "all_gather", "ring", 3, True),
    "reduce_scatter-all_pairs": partial(built_in, "reduce_scatter", "all_pairs", 3, True),
    "broadcast-chain": partial(built_in, "broadcast", "chain", 4, False),
    "all_to_all-pairwise": partial(built_in, "all_to_all", "pairwise", 3, True),
    "all_to_all-pairwise-apart": partial(built_in, "all_to_all", "pairwise", 3, False),
    "gather-direct": partial(built_in, "gather", "direct", 3, False),
    "all_reduce-two_shot-scratch": lambda: program("all_reduce", "two_shot", 3).compile(fusion=False),
    "all_to_all-scratch": relayed_all_to_all,
    "all_gather-scratch": relayed_all_gather,
}


class Mutator:
    """Changes one thing of a plan, in place."""

    def __init__(self, plan: ir.Plan, source: random.Random) -> None:
        self.plan = plan
        self.source = source

    def change(self) -> None:
        self.source.choice(
            [
                self.swap,
                self.drop,
                self.repeat,
                self.move,
                self.field,
                self.field,
                self.field,
                self.wait,
                self.resize,
            ]
        )()

    def block(self) -> ir.Block:
        rank = self.source.choice(self.plan.ranks)
        return self.source.choice(rank.blocks)

    def swap(self) -> None:
        steps = self.block().instructions
        if len(steps) >= 2:
            at = self.source.randrange(len(steps) - 1)
            steps[at], steps[at + 1] = steps[at + 1], steps[at]

    def drop(self) -> None:
        steps = self.block().instructions
        if steps:
            steps.pop(self.source.randrange(len(steps)))

    def repeat(self) -> None:
        steps = self.block().instructions
        if steps:
            steps.insert(self.source.randrange(len(steps) + 1), self.source.choice(steps))

    def move(self) -> None:
        """Of an instruction to another block of its rank, which may be a new one."""
        rank = self.source.choice(self.plan.ranks)
        if self.source.random() < 0.5:
            rank.blocks.append(ir.Block())
        victim, home = self.source.choice(rank.blocks), self.source.choice(rank.blocks)
        if victim.instructions:
            step = victim.instructions.pop(self.source.randrange(len(victim.instructions)))
            home.instructions.insert(self.source.randrange(len(home.instructions) + 1), step)

    def wait(self) -> None:
        rank = self.source.choice(self.plan.ranks)
        home = self.source.choice(rank.blocks)
        if home.instructions:
            at = self.source.randrange(len(home.instructions))
            on = ir.Dependency(self.source.randrange(len(rank.blocks)), self.source.randrange(4))
            home.instructions[at] = replace(home.instructions[at], after=(on,))

    def resize(self) -> None:
        """Of both ends of a message: as long as some chunk, which is the same part's where parts differ, or scratch."""
        sends, receives = self._ends("sends"), self._ends("receives")
        connection = self.source.choice(sorted(sends)) if sends else None
        if connection not in receives:
            return
        position = self.source.randrange(len(sends[connection]))
        chunks = self.plan.chunks_per_group
        sender, receiver = connection[:2]
        inside, scratch = self.source.randrange(chunks), self.source.random() < 0.5
        for ends, part in ((sends, receiver), (receives, sender)):
            if position >= len(ends[connection]):
                continue
            steps, at = ends[connection][position]
            buffer = "input" if ends is sends else "output"
            groups = self.plan.groups(buffer)
            chunk = inside + chunks * (part if groups > 1 else 0)
            steps[at] = replace(
                steps[at],
                size=replace(
                    steps[at].size, buffer="scratch" if scratch else buffer, chunk=0 if scratch else chunk
                ),
            )

    def _ends(self, side: str) -> dict[tuple[int, int, int], list[tuple[list[ir.Instruction], int]]]:
        """By sender, receiver and channel: the instructions that send, or receive, its messages."""
        found: dict[tuple[int, int, int], list[tuple[list[ir.Instruction], int]]] = {}
        for rank, part in enumerate(self.plan.ranks):
            for block in part.blocks:
                for at, step in enumerate(block.instructions):
                    for c in getattr(step, side):
                        pair = (rank, c.peer) if side == "sends" else (c.peer, rank)
                        found.setdefault((*pair, c.channel), []).append((block.instructions, at))
        return found

    def field(self) -> None:
        steps = self.block().instructions
        if not steps:
            return
        at = self.source.randrange(len(steps))
        steps[at] = self._changed(steps[at])

    def _changed(self, i: ir.Instruction) -> ir.Instruction:
        kind = self.source.choice(["opcode", "final", "source", "destination", "size", "position", "channel"])
        if kind == "opcode":
            return i.with_opcode(self.source.choice(list(ir.OPCODES)))
        if kind == "final":
            return replace(i, final=not i.final)
        if kind == "position":
            return replace(i, local_position=self.source.randint(0, len(i.receives)))
        if kind == "channel":
            return replace(i, sends=tuple(replace(c, channel=self.source.randrange(2)) for c in i.sends))
        if kind == "source" and i.source:
            return replace(i, source=self._slice(i.source))
        if kind == "destination" and i.destination:
            return replace(i, destination=self._slice(i.destination))
        return replace(i, size=self._slice(i.size))

    def _slice(self, s: ir.Slice) -> ir.Slice:
        if self.source.random() < 0.3:
            return replace(s, buffer=self.source.choice(["input", "output", "scratch"]))
        chunks = self.plan.chunks_per_group * max(self.plan.input_groups, self.plan.output_groups)
        if s.buffer == "scratch":
            chunks = max(rank.scratch_chunks for rank in self.plan.ranks)
        return replace(s, chunk=self.source.randrange(chunks))


def mutated(base: ir.Plan, seed: int) -> ir.Plan:
    source = random.Random(seed)
    plan = ir.parse(ir.to_text(base))
    for rank in plan.ranks:
        rank.scratch_chunks = max(rank.scratch_chunks, 2)
    mutator = Mutator(plan, source)
    for _ in range(source.randint(1, 3)):
        mutator.change()
    return plan


def outcome(plan: ir.Plan, seed: int) -> str:
    """What the verifier says; raises if it is not what happens."""
    try:
        slots = ir.verify(plan)
    except errors.InvalidArgumentError as error:
        rule, shows, shown = evidence(plan, str(error), seed)
        if rule in ALWAYS and not shown:
            raise AssertionError(f"seed {seed}: not seen: {error}\n{ir.to_text(plan)}") from error
        if rule == "race" and race_changes_results(plan, str(error), seed):
            return "race with two results"
        return f"{rule}, seen" if shown else f"{rule}, not seen" if shows else "structure"
    try:
        check_by_running(plan, slots, seed)
        assert slots == 1 or deadlocks(plan, slots - 1, seed), f"{slots - 1} slots are enough"
    except (AssertionError, ValueError, ir.DeadlockError) as error:
        raise AssertionError(f"seed {seed}: accepted, but wrong: {error}\n{ir.to_text(plan)}") from error
    return "accepted"


def seeds(known: int, new: int) -> itertools.chain[int]:
    """The same ones in every run, whose outcomes can be counted, and others in each."""
    first = random.SystemRandom().randrange(known, 2**32)
    return itertools.chain(range(known), range(first, first + new))


def check_by_running(plan: ir.Plan, slots: int, seed: int) -> None:
    reductions = ["avg", "premul_sum"] if plan.collective in REDUCING else ["sum"]
    source = random.Random(seed)
    every_count: list[object] = [1, 5, 37]
    if plan.collective in VARYING and ir.takes_unequal_parts(plan):
        every_count += [uneven(plan, source) for _ in range(3)]
    for counts, tile_bytes, reduce_op in itertools.product(every_count, (16, 1 << 20), reductions):
        case = make_case(plan, counts, "int32", reduce_op, seed)
        outputs = ir.run(
            plan,
            case.inputs,
            counts=counts,  # type: ignore[arg-type]
            data_type="int32",
            reduce_op=reduce_op,
            scalar=case.scalar,
            slots=slots,
            tile_bytes=tile_bytes,
            schedule=random.Random(seed),
        )
        assert_right(case, outputs)


def uneven(plan: ir.Plan, source: random.Random) -> list[int] | list[list[int]]:
    """Counts of each rank's own; of an all_to_all in place, where what comes takes the place of what goes, both ways
    alike."""
    ranks = range(plan.rank_count)
    table = [[source.choice((0, 1, 3, 17, 40)) for _ in ranks] for _ in ranks]
    if plan.collective != "all_to_all":
        return table[0]
    return [[table[min(r, c)][max(r, c)] for c in ranks] for r in ranks] if plan.in_place else table


@pytest.mark.parametrize("name", PLANS)
def test_the_verdict_on_changed_plans_is_what_happens(name: str) -> None:
    base = PLANS[name]()
    outcomes: Counter[str] = Counter()
    for seed in seeds(200, 200):
        found = outcome(mutated(base, seed), seed)
        if seed < 200:
            outcomes[found] += 1
    assert outcomes["accepted"] > 0, "no mutation was harmless; the test proves little"
    assert 200 - outcomes["accepted"] > 50, "most mutations should be refused"
    assert any(name.endswith("seen") for name in outcomes), "nothing but structure was refused"
