"""Goal: no right program is refused, and every one comes to what its collective means.

Method: random programs of the standard collectives, right by construction: each chunk is reduced along a random tree,
and spread along another, some hops through scratch that is used again; fragments of several instances, channels by
hand, and the whole replicated. Compiled in every way, they must be accepted, run with the slots that lanes have, and
agree with the mathematics (ir/oracle.py) under random schedules.
"""

import random
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ir.oracle import assert_right, make_case
from starling import ir, lang
from starling.ir.plan import REDUCING
from starling.lang import Program

SETTINGS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=40)
# Who may have one buffer: where nothing that is still to be read is overwritten.
IN_PLACE = {"all_reduce", "all_gather", "reduce_scatter"}
MAKERS: dict[str, type[lang.Collective]] = {
    "all_reduce": lang.AllReduce,
    "all_gather": lang.AllGather,
    "reduce_scatter": lang.ReduceScatter,
    "broadcast": lang.Broadcast,
    "reduce": lang.Reduce,
    "all_to_all": lang.AllToAll,
    "gather": lang.Gather,
    "scatter": lang.Scatter,
}


class Writer:
    """Writes one random program, an operation at a time."""

    def __init__(self, kind: str, source: random.Random) -> None:
        self.source = source
        self.ranks = source.randint(1, 4)
        self.chunks = source.randint(1, 3)
        self.in_place = kind in IN_PLACE and source.random() < 0.4
        self.root = source.randrange(self.ranks) if kind in ir.plan.ROOTED else 0
        options = {"root": self.root} if kind in ir.plan.ROOTED else {"in_place": self.in_place}
        collective = MAKERS[kind](self.ranks, self.chunks, **options)
        self.made = Program("random", collective, instances=source.randint(1, 3))
        self.free: list[list[int]] = [[] for _ in range(self.ranks)]  # scratch that may be used again
        self.used = [0] * self.ranks

    def write(self, ways: list[Iterator[None]]) -> Program:
        """The chunks' ways, mingled at random."""
        while ways:
            way = self.source.choice(ways)
            if next(way, self) is self:
                ways.remove(way)
        return self.made

    def hop(
        self, place: tuple[int, str, int], to: tuple[int, str, int], reduce: bool = False
    ) -> Iterator[None]:
        """From one place to another, at times through some rank's scratch."""
        if self.source.random() < 0.3:
            rank = self.source.randrange(self.ranks)
            if not self.free[rank]:
                self.free[rank].append(self.used[rank])
                self.used[rank] += 1
            aside = rank, "scratch", self.free[rank].pop()
            yield from self.step(place, aside, False)
            yield from self.step(aside, to, reduce)
            self.free[rank].append(aside[2])
        else:
            yield from self.step(place, to, reduce)

    def step(self, place: tuple[int, str, int], to: tuple[int, str, int], reduce: bool) -> Iterator[None]:
        channel = self.source.choice([None, None, None, 0, 1])
        with self.made.parallelize(self.source.choice([1, 1, 1, 2, 3])):
            if reduce:
                self.made.chunk(*to).reduce(self.made.chunk(*place), ch=channel)
            else:
                self.made.chunk(*place).copy(*to, ch=channel)
        yield

    def reduced(self, index: int, ends: list[tuple[int, int]]) -> Iterator[None]:
        """Input chunk `index` of all ranks, to output chunks (rank, index)."""
        left = list(range(self.ranks))
        self.source.shuffle(left)
        while len(left) > 1:
            rank, other = left.pop(), self.source.choice(left)
            yield from self.hop((rank, "input", index), (other, "input", index), reduce=True)
        yield from self.spread((left[0], "input", index), ends)

    def spread(self, place: tuple[int, str, int], ends: list[tuple[int, int]]) -> Iterator[None]:
        holders = [place]
        for rank, index in self.source.sample(ends, len(ends)):
            if not (self.in_place and rank == place[0]):  # in place it is there
                yield from self.hop(self.source.choice(holders), (rank, "output", index))
            holders.append((rank, "output", index))


def ways_of(kind: str, w: Writer) -> list[Iterator[None]]:
    everyone, chunks = range(w.ranks), range(w.chunks)
    parts = [(rank, k, rank * w.chunks + k) for rank in everyone for k in chunks]
    ways: dict[str, Callable[[], list[Iterator[None]]]] = {
        "all_reduce": lambda: [w.reduced(k, [(rank, k) for rank in everyone]) for k in chunks],
        "reduce": lambda: [w.reduced(k, [(w.root, k)]) for k in chunks],
        "reduce_scatter": lambda: [w.reduced(at, [(rank, k)]) for rank, k, at in parts],
        "all_gather": lambda: [
            w.spread((rank, "input", k), [(to, at) for to in everyone]) for rank, k, at in parts
        ],
        "gather": lambda: [w.spread((rank, "input", k), [(w.root, at)]) for rank, k, at in parts],
        "scatter": lambda: [w.spread((w.root, "input", at), [(rank, k)]) for rank, k, at in parts],
        "broadcast": lambda: [
            w.spread((w.root, "input", k), [(rank, k) for rank in everyone]) for k in chunks
        ],
        "all_to_all": lambda: [
            w.spread((rank, "input", to * w.chunks + k), [(to, at)])
            for rank, k, at in parts
            for to in everyone
        ],
    }
    return ways[kind]()


@pytest.mark.parametrize("kind", MAKERS)
@SETTINGS
@given(
    st.integers(0, 2**32),
    st.sampled_from(["channels", "connections", "one block"]),
    st.booleans(),
    st.booleans(),
)
def test_a_right_program_is_accepted_and_runs(
    kind: str, seed: int, policy: str, fusion: bool, fans: bool
) -> None:
    source = random.Random(seed)
    writer = Writer(kind, source)
    made = writer.write(ways_of(kind, writer))
    blocks = {"channels": None, "connections": 32, "one block": 1}  # a plan has 64 at most
    plan = made.compile(
        policy="connections" if policy == "connections" else "channels",
        blocks=blocks[policy],
        fusion=fusion,
        fans=fans,
    )
    assert ir.verify(plan) <= ir.lane_slots()
    for count in (1, 13, 4 * plan.chunks_per_group + 1):
        op = source.choice(["sum", "avg", "premul_sum", "max"]) if kind in REDUCING else "sum"
        case = make_case(plan, count, "int32", op, seed)
        outputs = ir.run(
            plan,
            case.inputs,
            counts=count,
            data_type="int32",
            reduce_op=op,
            scalar=case.scalar,
            slots=ir.lane_slots(),
            tile_bytes=16,
            schedule=random.Random(seed),
        )
        assert_right(case, outputs)
