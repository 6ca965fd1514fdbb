"""All passes in their order."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from starling import ir
from starling.errors import InvalidArgumentError
from starling.lang.errors import ProgramError
from starling.lang.program import Program
from starling.passes.emit import emit
from starling.passes.fuse import fuse
from starling.passes.graph import Graph, expand
from starling.passes.moves import Layout, Move, layout_of, replicate
from starling.passes.refusal import places_at_fault
from starling.passes.schedule import Schedule, StuckError, schedule
from starling.passes.steps import LengthError, Steps, resolve

PASSES = ("trace", "moves", "steps", "graph", "schedule", "plan")
# As ir.lane_slots(): plans that need more run in no communicator.
SLOTS = 2


class CompileError(ProgramError):
    """No plan of the program runs with so many slots."""


class RefusedError(CompileError, InvalidArgumentError):
    """The verifier refuses the plan; ``place`` is the line that made the instruction at fault."""


@dataclass
class Compilation:
    """What each pass left behind."""

    program: Program
    layout: Layout
    moves: list[Move]
    steps: Steps
    fused: Graph
    schedule: Schedule
    plan: ir.Plan


def run_passes(
    program: Program,
    *,
    blocks: int | None = None,
    policy: str = "channels",
    slots: int = SLOTS,
    fusion: bool = True,
    fans: bool = True,
    by_hand: bool = True,
) -> Compilation:
    """All passes but the verifier; see ``compile_program``."""
    program.check()
    with _no_collector():
        return _run(program, blocks, policy, slots, fusion, fans, by_hand)


@contextmanager
def _no_collector() -> Iterator[None]:
    """Hundreds of thousands of objects that all stay: the collector would look at them again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _run(
    program: Program, blocks: int | None, policy: str, slots: int, fusion: bool, fans: bool, by_hand: bool
) -> Compilation:
    layout, moves, steps = _resolved(program)
    for step in steps.steps if not by_hand else ():
        step.send_block = step.receive_block = None
    # What is fused in one way may find no order; less fused it does. The trace itself is an order with one slot.
    attempts = [(fusion, fans and policy == "channels", True), (fusion, fans and policy == "channels", False)]
    attempts += [(fusion, False, True), (fusion, False, False), (False, False, False)]
    failure: StuckError | None = None
    for fuses, with_fans, by_depth in dict.fromkeys(attempts):
        graph = expand(steps)
        if fuses:
            fuse(graph, fans=with_fans)
        try:
            found = schedule(graph, blocks=blocks, policy=policy, slots=slots, by_depth=by_depth)
        except StuckError as stuck:
            failure = failure or stuck
            continue
        plan = emit(graph, found, program.name, program.protocol, program.tile_bytes)
        plan.sizes = program.sizes
        return Compilation(program, layout, moves, steps, graph, found, plan)
    raise CompileError(program.place, f"{program.name}: {failure}; use more channels (ch=) or slots")


def _resolved(program: Program) -> tuple[Layout, list[Move], Steps]:
    layout = layout_of(program)
    moves = replicate(program, layout)
    try:
        return layout, moves, resolve(program, layout, moves)
    except LengthError:
        if program.collective.kind != "custom":
            raise
    # A collective of one's own may move chunks to other positions: then every chunk is a group of its own, all of
    # them equally long.
    layout = layout_of(program, 1)
    moves = replicate(program, layout)
    return layout, moves, resolve(program, layout, moves)


def compile_program(
    program: Program,
    *,
    blocks: int | None = None,
    policy: str = "channels",
    slots: int = SLOTS,
    fusion: bool = True,
    fans: bool = True,
    by_hand: bool = True,
    verify: bool = True,
) -> ir.Plan:
    """The plan of a program, proved: postcondition, structure, deadlock, races, result.

    blocks: of each rank at most (None: one for every channel and instance, or as the program says). policy:
    "channels" puts what uses one channel into one block; "connections" gives every connection that shares no
    instruction with another a block of its own, as GC3 does. slots: messages under way on a connection at most.
    fusion, fans: see passes/fuse.py. by_hand: whether the program's sendtb and recvtb count. Raises ProgramError and
    its kin with the line at fault, CompileError if no order runs with the slots, RefusedError if the plan is wrong.
    """
    found = run_passes(
        program, blocks=blocks, policy=policy, slots=slots, fusion=fusion, fans=fans, by_hand=by_hand
    )
    if verify:
        try:
            ir.verify(found.plan)
        except InvalidArgumentError as refusal:
            raise _refused(found, str(refusal)) from refusal
    return found.plan


def _refused(found: Compilation, refusal: str) -> RefusedError:
    places = places_at_fault(found.fused, found.schedule, refusal) or [found.program.place]
    others = f" (with {', '.join(map(str, places[1:]))})" if len(places) > 1 else ""
    return RefusedError(places[0], f"{refusal}{others}")
