"""`starling bench floors`: what bounds each collective on GPUs from below, and how far from it both libraries are."""

from __future__ import annotations

import json
import math
import operator
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from starling.write_whole import write_whole

from .options import refuse
from .plots import bytes_text
from .tables import _origin, _table

MARKED = re.compile(r"(<!-- floors of (\S+) -->\n).*?(<!-- /floors -->)", re.S)

# Of NVIDIA's H100 and H200, whose GPUs are joined by 18 NVLink 4 links; measured on four H200.
LAUNCH_US = 2.9  # one empty kernel behind another in a stream
LAUNCHES = 2  # the operation's kernel, and the one that reads its result
FLIGHT_US = 0.65  # a word from GPU to GPU
SUM_GB_PER_S = 371.0  # kernels that read a peer's memory, which must run where something is summed
COPY_GB_PER_S = 397.0  # copy engines

REDUCING = ("all_reduce", "reduce_scatter", "reduce")


@dataclass(frozen=True)
class Way:
    """One way to do a collective: flights behind each other, and bytes through a GPU's links one way."""

    hops: int
    link_bytes: float


def ways(collective: str, ranks: int, size_bytes: int) -> list[Way]:
    """The ways between which the least time lies at every size; ``size_bytes`` is nccl-tests' size."""
    others = ranks - 1
    part = size_bytes / ranks
    if collective == "all_reduce":
        # Everybody reads everything; or each sums its part, then all gather the sums.
        return [Way(1, others * size_bytes), Way(2, 2 * others * part)]
    if collective in ("all_gather", "reduce_scatter", "all_to_all"):
        return [Way(1, others * part)]
    if collective in ("broadcast", "reduce"):
        # All at the root's links; or in pieces along a chain.
        return [Way(1, others * size_bytes), Way(others, size_bytes)]
    if collective == "send_recv":
        return [Way(1, size_bytes)]
    raise ValueError(f"no floor is known of '{collective}'")


@dataclass(frozen=True)
class Floor:
    us: float
    way: Way

    @property
    def bound_by_bytes(self) -> bool:
        return 2 * (self.us - LAUNCHES * LAUNCH_US - self.way.hops * FLIGHT_US) > self.us


def floor(collective: str, ranks: int, size_bytes: int) -> Floor:
    rate = SUM_GB_PER_S if collective in REDUCING else COPY_GB_PER_S

    def us(way: Way) -> float:
        return LAUNCHES * LAUNCH_US + way.hops * FLIGHT_US + way.link_bytes / rate / 1e3

    way = min(ways(collective, ranks, size_bytes), key=us)
    return Floor(us(way), way)


# What is aimed at on four GPUs: NCCL's time over ours, by band of sizes; and where that differs within a band.
BANDS = ((8, 64 << 10), (128 << 10, 1 << 20), (2 << 20, 16 << 20), (32 << 20, 2 << 30))
AIMS = {
    "all_reduce": (1.4, 1.3, 1.25, 1.0),
    "all_gather": (1.2, 1.3, 1.3, 1.03),
    "reduce_scatter": (1.2, 1.3, 1.3, 1.03),
    "broadcast": (1.0, 1.1, 1.15, 1.0),
    "reduce": (1.0, 1.1, 1.15, 1.0),
    "all_to_all": (1.6, 1.5, 1.3, 1.05),
    "send_recv": (1.2, 1.3, 1.8, 1.05),
}
AIMS_AT = {("all_reduce", 32 << 20): 1.05, ("send_recv", 128 << 20): 2.0}


def aim_of(collective: str, band: int, size_bytes: int) -> float:
    return AIMS_AT.get((collective, size_bytes), AIMS[collective][band])


def _us(row: dict[str, Any], library: str) -> float | None:
    time_us: float | None = row["out_of_place"].get(library, {}).get("time_us")
    return time_us


def _short(us: float) -> str:
    return f"{us:.1f}" if us < 100 else f"{us:.0f}"


def by_size(doc: dict[str, Any]) -> str:
    """Floor / ours / NCCL's, a line a size."""
    rows = doc["rows"]
    names = list(dict.fromkeys(row["collective"] for row in rows))
    # The smallest sizes have one element of each rank at least: they stand at the size that was asked for.
    asked = sorted({row["size_bytes"] for row in rows if row["collective"] in ("all_reduce", "send_recv")})
    lines = []
    for size in asked or sorted({row["size_bytes"] for row in rows}):
        line = [bytes_text(size)]
        for name in names:
            found = next(
                (row for row in rows if (row["collective"], row["size_bytes"]) == (name, size)), None
            )
            if found is None:
                line.append("-")
                continue
            bound = floor(name, found["ranks"], size)
            times = [_us(found, library) for library in ("starling", "nccl")]
            texts = [_short(bound.us), *("-" if us is None else _short(us) for us in times)]
            line.append(" / ".join(texts))
        lines.append(line)
    return _table(["", *names], lines)


def _mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def by_band(doc: dict[str, Any]) -> str:
    """How many times the floor both take, and NCCL's time over ours beside what is aimed at."""
    lines = []
    for name in dict.fromkeys(row["collective"] for row in doc["rows"]):
        for band, (first, last) in enumerate(BANDS):
            found = []
            for row in doc["rows"]:
                ours, theirs = (_us(row, library) for library in ("starling", "nccl"))
                if (
                    row["collective"] != name
                    or not first <= row["size_bytes"] <= last
                    or not ours
                    or not theirs
                ):
                    continue
                bound = floor(name, row["ranks"], row["size_bytes"])
                found.append((bound, ours, theirs, row["size_bytes"]))
            if not found:
                continue
            link = [bound.way.link_bytes / size for bound, _, _, size in found]
            hops = sorted({bound.way.hops for bound, *_ in found})
            bytes_bound = sum(bound.bound_by_bytes for bound, *_ in found)
            ratios = [theirs / ours for _, ours, theirs, _ in found]
            aims = [aim_of(name, band, size) for *_, size in found]
            elsewhere = [
                f"{aim:.2f} at {bytes_text(size)}" for (of, size), aim in AIMS_AT.items() if of == name
            ]
            elsewhere = elsewhere if band == len(BANDS) - 1 else []
            sizes = bytes_text(first) + " – " + bytes_text(min(last, max(size for *_, size in found)))
            lines.append(
                [
                    f"{name}, {sizes}",
                    f"{min(link):.2g}" if min(link) == max(link) else f"{min(link):.2g} – {max(link):.2g}",
                    " or ".join(map(str, hops)),
                    f"{bytes_bound} of {len(found)}",
                    f"{_mean([ours / bound.us for bound, ours, _, _ in found]):.2f}",
                    f"{_mean([theirs / bound.us for bound, _, theirs, _ in found]):.2f}",
                    f"{_mean(ratios):.2f} ({min(ratios):.2f})",
                    "; ".join([f"{AIMS[name][band]:.2f}", *elsewhere]),
                    f"{sum(map(operator.ge, ratios, aims))} of {len(ratios)}",
                ]
            )
    header = [
        "",
        "link bytes / size",
        "hops",
        "bytes bound",
        "ours / floor",
        "NCCL / floor",
        "NCCL / ours (least)",
    ]
    return _table([*header, "aim", "reached"], lines)


def text_of(doc: dict[str, Any]) -> str:
    settings = doc["settings"]
    return (
        f"Floor = {LAUNCHES} × {LAUNCH_US:g} µs for the launches of the operation and of the kernel that reads its "
        f"result + hops × {FLIGHT_US:g} µs + the bytes that go through one GPU's links one way, over "
        f"{SUM_GB_PER_S:g} GB/s where "
        f"something is summed and {COPY_GB_PER_S:g} where not; of the ways that a collective can go, the faster one. "
        "Launches that overlap would be below it; packets, which are twice the bytes, and the copy of a rank's own "
        "part within its GPU are not in it. "
        f"{settings['gpus']} × {settings['device']}, out of place, µs, floor / Starling / NCCL:\n\n"
        + by_size(doc)
        + "\nBy the bands for which there are aims (geometric means; aims are for four GPUs):\n\n"
        + by_band(doc)
        + f"\n{_origin(doc)}\n"
    )


def renewed(page: Path) -> str:
    """The page's text with new tables, each of the file of results that its marker names, seen from the page.

    Raises ValueError if it has no markers, OSError if a file cannot be read.
    """
    text = page.read_text()
    if not MARKED.search(text):
        raise ValueError("no <!-- floors of FILE --> ... <!-- /floors --> in it")

    def tables(found: re.Match[str]) -> str:
        return found[1] + text_of(json.loads((page.parent / found[2]).read_text())) + found[3]

    return MARKED.sub(tables, text)


def command(
    results: Annotated[Path, typer.Argument(help="of `starling bench gpu`")] = Path(
        "bench/results/gpu_collectives_4.json"
    ),
    page: Annotated[
        Path | None,
        typer.Option(help="renew its tables, of the files that its <!-- floors of FILE --> markers name"),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="change nothing; exit with 1 if the page would change")
    ] = False,
) -> None:
    """What bounds each collective from below, and how many times that long Starling and NCCL take.

    Reads files of results, measures nothing.
    """
    try:
        if page is None:
            typer.echo(text_of(json.loads(results.read_text())), nl=False)
            return
        new = renewed(page)
    except (OSError, ValueError, KeyError) as error:
        refuse(f"{page or results}: {error}")
    if check and new != page.read_text():
        refuse(f"{page} differs from its results: starling bench floors --page {page}", 1)
    if not check:
        write_whole(page, new)
