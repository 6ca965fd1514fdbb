"""The table as nccl-tests prints it, with columns for the libraries compared."""

from __future__ import annotations

from typing import Any

from .convention import Point
from .measure import Timing

HALF = " {:>10} {:>7} {:>7} {:>6}"


def header(others: list[str]) -> list[str]:
    """Lines above the rows."""
    left = "# {:>12} {:>12} {:>9} {:>7} {:>5}"
    compared = "".join(f" {name + ' us':>{_width(name)}} {'ratio':>6}" for name in others)
    return [
        left.format("", "", "", "", "")
        + HALF.format("out-of-place", "", "", "")
        + HALF.format("in-place", "", "", ""),
        left.format("size", "count", "type", "redop", "root")
        + HALF.format("time", "algbw", "busbw", "#wrong") * 2
        + compared,
        left.format("(B)", "(elements)", "", "", "") + HALF.format("(us)", "(GB/s)", "(GB/s)", "") * 2,
    ]


def line(
    point: Point, out_of_place: dict[str, Timing], in_place: dict[str, Timing] | None, first: str
) -> str:
    """One row: the library `first` in nccl-tests' columns, the others' times and how many times longer they take."""
    text = (
        f"  {point.size_bytes:>12} {point.count:>12} {point.type_name:>9} {point.printed_reduction:>7} "
        f"{point.printed_root:>5}"
    )
    text += _half(point, out_of_place[first]) + _half(point, in_place[first] if in_place else None)
    mine = out_of_place[first].seconds
    for name, timing in out_of_place.items():
        if name == first:
            continue
        theirs = timing.seconds
        ratio = f"{theirs / mine:.2f}" if theirs and mine else "-"
        mark = "" if not timing.wrong else f"!{timing.wrong}"
        text += f" {microseconds(theirs) + mark:>{_width(name)}} {ratio:>6}"
    return text


def _width(name: str) -> int:
    return max(14, len(name) + 3)


def microseconds(seconds: float | None) -> str:
    if seconds is None:
        return "N/A"
    us = seconds * 1e6
    return f"{us:.2f}" if us < 1000 else f"{us:.1f}" if us < 100_000 else f"{us:.0f}"


def _half(point: Point, timing: Timing | None) -> str:
    if timing is None or timing.seconds is None:
        return HALF.format("N/A", "N/A", "N/A", "N/A")
    bandwidth = point.algorithm_bandwidth(timing.seconds)
    wrong = "N/A" if timing.wrong is None else str(timing.wrong)
    return HALF.format(
        microseconds(timing.seconds), f"{bandwidth:.2f}", f"{bandwidth * point.bus_factor:.2f}", wrong
    )


def row(point: Point, out_of_place: dict[str, Timing], in_place: dict[str, Timing] | None) -> dict[str, Any]:
    """The same as JSON: all libraries, all samples."""
    return {
        "collective": point.collective,
        "ranks": point.ranks,
        "size_bytes": point.size_bytes,
        "count": point.count,
        "type": point.type_name,
        "redop": point.printed_reduction,
        "root": point.printed_root,
        "out_of_place": {name: _timing_json(point, timing) for name, timing in out_of_place.items()},
        "in_place": {name: _timing_json(point, timing) for name, timing in (in_place or {}).items()},
    }


def _timing_json(point: Point, timing: Timing) -> dict[str, Any]:
    if timing.seconds is None:
        return {"unsupported": timing.unsupported}
    bandwidth = point.algorithm_bandwidth(timing.seconds)
    return {
        "time_us": round(timing.seconds * 1e6, 3),
        "algbw_gb_per_s": round(bandwidth, 4),
        "busbw_gb_per_s": round(bandwidth * point.bus_factor, 4),
        "wrong": timing.wrong,
        "samples_us": [round(sample * 1e6, 3) for sample in timing.samples],
        "variant": timing.variant,
    }
