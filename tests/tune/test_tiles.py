"""Goal: tuning tries tiles of other sizes where they make a difference, and takes one where it pays.

Method: cases whose cost is known; names and plans of what takes part; made-up times.
"""

from dataclasses import replace

import pytest
from starling.plans import program

from starling import ir
from starling.tune import Link, Machine, cost_us
from starling.tune.candidates import candidates, in_other_tiles, own_candidates
from starling.tune.model import CPU
from starling.tune.tuning import Tuning, key_of, tune, works_of

FLAT = Machine(inside=Link(1.0, 1e4), instruction_us=0.1, copy_bytes_per_us=1e5, reduce_bytes_per_us=1e5)


def test_tiles_follow_each_other_through_a_chain() -> None:
    """Seven hops of 512 KiB: in one piece one after the other, in small tiles nearly all at once; each tile costs."""
    plan = ir.builtin("broadcast", "chain", 8)
    machine = replace(FLAT, slot_bytes=1 << 20)
    us = {}
    for plan.tile_bytes in (0, 1 << 14, 16):
        us[plan.tile_bytes] = cost_us(plan, 1 << 19, machine)
    assert us[0] > 7 * (1 << 19) / 1e4 > 4 * us[1 << 14] > us[1 << 14] > (1 << 19) / 1e4
    assert us[16] > (1 << 15) * machine.instruction_us > us[1 << 14]


def test_tiles_that_make_a_difference_take_part() -> None:
    by_name = {c.name: c for c in candidates("broadcast", 4, 2, False)}
    chain, text, pull = by_name["chain-2"], by_name["chain-1"], by_name["direct_pull-2"]
    assert (
        in_other_tiles([chain, text, pull], 1 << 10, CPU, 99) == []
    )  # a chunk is no larger than the least tile
    # Slots hold 64 KiB; of two blocks each has half.
    found = {c.name: c for c in in_other_tiles([chain, text], 1 << 18, CPU, 99)}
    assert set(found) == {
        f"chain-{blocks}@{tile}" for blocks in (1, 2) for tile in (1 << 10, 1 << 12, 1 << 14)
    }
    one = found["chain-2@4096"]
    assert (one.algorithm, key_of(one), one.origin) == ("chain@4096", ("chain@4096", 2), "chain-2")
    assert one.plan and one.plan.tile_bytes == 4096 and chain.plan and chain.plan.tile_bytes == 0
    other = found["chain-1@4096"]
    assert key_of(other) == ("chain@4096", 1) and "\ntile 4096\n" in other.text
    # What is pulled has larger ones, too.
    tiles = [int(c.name.split("@")[1]) for c in in_other_tiles([pull], 1 << 23, CPU, 99)]
    assert sorted(tiles) == [1 << 12, 1 << 14, 1 << 16, 1 << 20, 1 << 22]
    own = program("all_reduce", "ring", 2).compile()
    own.name = "own"
    (mine,) = own_candidates([own], 2, 1, [64])
    tiled = in_other_tiles([mine], 1 << 20, CPU, 2)
    assert len(tiled) == 2 and all(key_of(c)[0].startswith("own@") and key_of(c)[1] == 0 for c in tiled)


def test_a_tile_has_to_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    tuning = Tuning(["all_reduce"], 2, [1 << 20], places=(False,), dtypes=("float32",), most=1, tiled=1)
    works = works_of(tuning)
    plain, tiled, choice = (candidate.name for candidate in works[0].candidates)
    assert tiled.startswith(f"{plain}@")
    for us, row in ((97.5, plain), (90.0, tiled)):
        samples = {plain: [100.0], tiled: [us], choice: [1.0]}
        monkeypatch.setattr(
            "starling.tune.tuning.measured", lambda *_, found=samples, **__: ("here", [found])
        )
        (found,) = tune(tuning, works).table.rows
        assert ("@" in found.algorithm) == ("@" in row) and found.time_us == samples[row][0]


def test_a_tile_in_the_finals_without_its_plain_plan_has_to_gain_too(monkeypatch: pytest.MonkeyPatch) -> None:
    tuning = Tuning(["all_reduce"], 2, [1 << 20], places=(False,), dtypes=("float32",), most=1, tiled=1)
    works = works_of(tuning)
    plain, tiled, choice = (candidate.name for candidate in works[0].candidates)
    for us, wanted in ((97.5, (plain, 100.0)), (90.0, (tiled, 90.0))):
        samples = {plain: [100.0], tiled: [us] * 9, choice: [1.0]}
        monkeypatch.setattr(
            "starling.tune.tuning.measured", lambda *_, found=samples, **__: ("here", [found])
        )
        (found,) = tune(tuning, works).table.rows
        name, time_us = wanted
        assert ("@" in found.algorithm) == ("@" in name) and found.time_us == time_us
