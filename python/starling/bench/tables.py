"""The tables of README.md and docs/RESULTS.md, made from the result files between markers.

``<!-- bench: disorder late_rank -->`` to ``<!-- /bench -->`` has the tables of these names (MAKERS), ``<!-- bench -->``
all of them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from starling.write_whole import write_whole

from .options import refuse
from .plots import bytes_text

MARKED = re.compile(r"(<!-- bench(?:: ([\w ]+))? -->\n).*?(<!-- /bench -->)", re.S)
PAGES = (Path("README.md"), Path("docs/RESULTS.md"))
OPENMPI_FROM_BYTES = 16 << 10


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _origin(doc: dict[str, Any]) -> str:
    machine = doc["machine"]
    versions = ", ".join(
        f"{name} {machine[key]}"
        for name, key in (("PyTorch", "torch"), ("Open MPI", "openmpi"))
        if machine[key]
    )
    commit = doc["commit"] + (f" (its content is in {doc['landed_as']})" if "landed_as" in doc else "")
    gpus = f", {machine['gpus']}" if machine.get("gpus") else ""
    typed = "".join(f"{name}={value} " for name, value in doc.get("environment", {}).items()) + doc["command"]
    return (
        f"`{typed}`, commit {commit}, {doc['date'][:10]}, {machine['cpu']}, {machine['cores']} cores{gpus}"
        + (f", {versions}" if versions else "")
        + "."
    )


def _time(row: dict[str, Any], library: str) -> float | None:
    time_us: float | None = row["out_of_place"].get(library, {}).get("time_us")
    return time_us


def _ratios(rows: list[dict[str, Any]], mine: str, theirs: str, first_bytes: int = 0) -> list[float]:
    found = []
    for row in rows:
        ours, other = _time(row, mine), _time(row, theirs)
        if ours and other and row["size_bytes"] >= first_bytes:
            found.append(other / ours)
    return found


def _mean_and_least(ratios: list[float]) -> str:
    if not ratios:
        return "-"
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return f"{mean:.1f} ({min(ratios):.2f})"


def collectives_summary(doc: dict[str, Any]) -> str:
    rows = doc["rows"]
    keys = list(dict.fromkeys((row["collective"], row["ranks"]) for row in rows))
    summary = []
    for collective, ranks in keys:
        mine = [row for row in rows if (row["collective"], row["ranks"]) == (collective, ranks)]
        summary.append(
            [
                f"{collective}, {ranks} ranks",
                _mean_and_least(_ratios(mine, "starling", "gloo")),
                _mean_and_least(_ratios(mine, "torch", "gloo")),
                _mean_and_least(_ratios(mine, "starling", "openmpi", OPENMPI_FROM_BYTES)),
            ]
        )
    text = (
        "How many times faster than the other: geometric mean over the sizes measured, in parentheses the least. gloo "
        "runs through PyTorch; Starling through its C API and, in the second column, through PyTorch too. Open MPI "
        "runs from C; from 16 KB on, the better of its two ways of waiting.\n\n"
    )
    table = _table(["", "over gloo", "over gloo, both in PyTorch", "over Open MPI"], summary)
    return text + table + f"\n{_origin(doc)}\n"


def all_reduce_tables(doc: dict[str, Any]) -> str:
    rows = doc["rows"]
    text = ""
    for ranks in dict.fromkeys(row["ranks"] for row in rows):
        chosen = [row for row in rows if row["collective"] == "all_reduce" and row["ranks"] == ranks]
        libraries = doc["settings"]["libraries"]
        lines = [
            [bytes_text(row["size_bytes"]), *(_microseconds(_time(row, library)) for library in libraries)]
            for row in chosen
        ]
        text += f"all_reduce, {ranks} ranks, µs a call:\n\n"
        text += _table(
            ["size", *("starling in PyTorch" if name == "torch" else name for name in libraries)], lines
        )
        text += "\n"
    return text + f"{_origin(doc)} All sizes and collectives: `bench/results/collectives.json`.\n"


def _microseconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if value < 1000 else f"{value:,.0f}"


def disorder_table(doc: dict[str, Any]) -> str:
    lines = [
        [
            f"{row['ranks']} ranks, {row['case']}",
            f"{row['time_ms']:.2f}",
            f"{row['ratio']:.2f}",
            f"{row['parks']:.0f}",
            f"{row['launches']:.1f}",
        ]
        for row in doc["rows"]
    ]
    text = (
        "Eight all-reduces of 256 B to 1 MB (DFCCL §6.1), each in a lane of its own; ratio to the same in one order "
        "on all ranks with as many device synchronizations:\n\n"
    )
    return text + _table(["", "ms", "ratio", "parks", "launches"], lines) + f"\n{_origin(doc)}\n"


def late_rank_table(doc: dict[str, Any]) -> str:
    lines = [
        [
            row["policy"],
            f"{row['time_ms']:.2f}",
            f"{row['parks']:.0f}",
            ("-" if row["queue_mean"] is None else f"{row['queue_mean']:.1f}") + f" ({row['queue_peak']})",
            f"{row['quits']:.1f}",
        ]
        for row in doc["rows"]
    ]
    text = (
        f"One late rank (DFCCL Fig. 11): bursts of {doc['settings']['collectives']} all-reduces, budgets fixed at a "
        "tenth of the profiled one, fixed at it, and adaptive from it:\n\n"
    )
    table = _table(["budget", "ms a burst", "parks", "task queue, mean (peak)", "quits"], lines)
    return text + table + f"\n{_origin(doc)}\n"


def completion_queue_table(doc: dict[str, Any]) -> str:
    names = {"ring": "vanilla ring", "packed_ring": "packed ring", "slots": "slots"}
    lines = [
        [
            names[row["queue"]],
            f"{row['publish_alone_ns']:.0f}",
            f"{row['publish_contended_ns']:.0f}",
            f"{row['latency_median_ns']:.0f}",
        ]
        for row in doc["rows"]
    ]
    text = f"Completion queues (DFCCL §5), {doc['settings']['producers']} producers, nanoseconds:\n\n"
    header = ["", "publish, alone", "publish, contended", "latency to the poller"]
    return text + _table(header, lines) + f"\n{_origin(doc)}\n"


GPU_SIZES = [8, 2 << 10, 32 << 10, 512 << 10, 2 << 20, 8 << 20, 32 << 20, 128 << 20, 1 << 30]


def _shown_sizes(rows: list[dict[str, Any]]) -> list[int]:
    asked = {8 * 4**k for k in range(20)} | set(GPU_SIZES)
    all_sizes = sorted({row["size_bytes"] for row in rows} & asked)
    return [size for size in all_sizes if size in GPU_SIZES] if len(all_sizes) > 9 else all_sizes


def gpu_collectives_table(doc: dict[str, Any], where: str = "out_of_place") -> str:
    """Starling / NCCL: microseconds up to 2 MB, bus bandwidth above, which one rank has none of."""
    settings = doc["settings"]
    rows = [row for row in doc["rows"] if row.get(where)]
    bus = settings["gpus"] > 1
    names = list(dict.fromkeys(row["collective"] for row in rows))
    lines = []
    for size in _shown_sizes(rows):
        unit, key = ("GB/s", "busbw_gb_per_s") if bus and size > 2 << 20 else ("µs", "time_us")
        line = [f"{bytes_text(size)}, {unit}"]
        for name in names:
            # The smallest sizes have one element of each rank at least.
            of_name = [row for row in rows if row["collective"] == name]
            nearest = min(of_name, key=lambda row: abs(row["size_bytes"] - size))
            place = nearest[where]
            # Of modes both sides' fastest, and which they are.
            best = [place["best"][one] for one in ("starling", "nccl")] if "best" in place else []
            found = [place.get(one, {}).get(key) for one in ("starling", "nccl", *best)]
            texts = ["-" if value is None else f"{value:.3g}" for value in found]
            line.append(" / ".join(texts[:2]))
            if best:
                line[-1] += f"; {texts[2]} ({_mode(best[0])}) / {texts[3]} ({_mode(best[1])})"
        lines.append(line)
    text = (
        f"Collectives on {settings['gpus']} GPU{'s' if bus else ''}, ranks are {settings['as']}, "
        f"{where.replace('_', ' ')}, Starling / NCCL {_nccl_version(settings['nccl'])} in the same run: one of many "
        "calls in a stream, with a kernel that reads its result behind each; µs"
    )
    text += ", from 8 MB on GB/s of bus bandwidth" if bus else ""
    if any("best" in row[where] for row in rows):
        text += "; behind the semicolon the fastest mode of each, and which it is"
    text += ":\n\n"
    return text + _table(["", *names], lines) + f"\n{_origin(doc)}\n"


def gpu_in_place_table(doc: dict[str, Any]) -> str:
    return gpu_collectives_table(doc, "in_place")


def gpu_latency_table(doc: dict[str, Any]) -> str:
    """all_reduce: what its caller pays, what one alone takes, and what the CPU sees."""
    rows = [row for row in doc["rows"] if row["collective"] == "all_reduce"]
    keys = [("starling", "call_us"), ("nccl", "call_us"), ("starling", "latency_us"), ("nccl", "latency_us")]
    keys += [("starling", "cpu_us")]
    lines = []
    for size in _shown_sizes(rows):
        place = next(row["out_of_place"] for row in rows if row["size_bytes"] == size)
        found = [place.get(library, {}).get(key) for library, key in keys]
        lines.append([bytes_text(size), *("-" if value is None else f"{value:.3g}" for value in found)])
    text = (
        f"all_reduce on {doc['settings']['gpus']} GPU{'s' if doc['settings']['gpus'] > 1 else ''}, out of place, µs: "
        "a call, to its caller; one alone, from the call to a synchronized stream; and Starling's submitted by the "
        "CPU, to the CPU's knowledge of its end, which NCCL's alone compares with:\n\n"
    )
    header = ["", "call", "NCCL's", "alone", "NCCL's", "from the CPU"]
    return text + _table(header, lines) + f"\n{_origin(doc)}\n"


def _mode(library: str) -> str:
    return library.partition(":")[2] or "as called"


def _nccl_version(number: int) -> str:
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def gpu_disorder_table(doc: dict[str, Any]) -> str:
    rows, settings = doc["rows"], doc["settings"]
    ours = list(dict.fromkeys(row["library"] for row in rows if not row["library"].startswith("nccl")))
    lines = []
    for case in dict.fromkeys(row["case"] for row in rows):
        mine = {row["library"]: row for row in rows if row["case"] == case}
        theirs = next((row for name, row in mine.items() if name.startswith("nccl")), None)
        cells = [_outcome(row, settings["iterations"]) for row in [*map(mine.get, ours), theirs]]
        lines.append([f"{next(iter(mine.values()))['situation']}: {case}", *cells])
    text = (
        f"DFCCL §6.1's program in the situations of §2.3: eight all-reduces in a random order of each of "
        f"{settings['ranks']} ranks' own, {settings['iterations']} iterations, every element compared. µs an iteration "
        f"where all was right; hung: no iteration ended for {settings['limit_s']:.0f} s. NCCL has a communicator for "
        "each of the eight. Multiprocessors are occupied for 90 s at most; what ended later does not count:\n\n"
    )
    return text + _table(["", *ours, "NCCL"], lines) + f"\n{_origin(doc)}\n"


def overlap_table(doc: dict[str, Any]) -> str:
    """Slowdowns of the kernel and of the collective, Starling / NCCL."""
    rows, settings = doc["rows"], doc["settings"]
    kernels = list(dict.fromkeys(row["kernel"] for row in rows))
    lines = []
    for collective in dict.fromkeys(row["collective"] for row in rows):
        line = [collective]
        for kernel in kernels:
            for key in ("kernel_slowdown", "collective_slowdown"):
                found = {
                    row["library"]: f"{row[key]:.2f}"
                    for row in rows
                    if (row["collective"], row["kernel"]) == (collective, kernel)
                }
                line.append(f"{found.get('starling', '-')} / {found.get('nccl', '-')}")
        lines.append(line)
    header = [text for kernel in kernels for text in (kernel, "the collective beside it")]
    text = (
        f"Computation beside collectives of {bytes_text(settings['bytes'])} on {settings['ranks']} GPUs: how many "
        "times as long each takes, Starling / NCCL:\n\n"
    )
    return text + _table(["", *header], lines) + f"\n{_origin(doc)}\n"


def gpu_overheads_table(doc: dict[str, Any]) -> str:
    lines = [[f"{row['what']}, {row['unit']}", f"{row['starling']:.3g}", row["dfccl"]] for row in doc["rows"]]
    text = "What yielding costs on a GPU, in the form of DFCCL §6.2 (whose figures are from other GPUs):\n\n"
    return text + _table(["", "Starling", "DFCCL"], lines) + f"\n{_origin(doc)}\n"


def _outcome(row: dict[str, Any] | None, iterations: int) -> str:
    if row is None:
        return "-"
    if row["outcome"] == "right":
        few = f" ({row['iterations']} iterations)" if row["iterations"] < iterations else ""
        return (f"right, {row['us_per_iteration']:,.0f}" if "us_per_iteration" in row else "right") + few
    return f"**{row['outcome']}** after {row['iterations']}"


@dataclass(frozen=True)
class Maker:
    file: str
    """The result file's name without its ending."""
    table: Callable[[dict[str, Any]], str]


MAKERS = {
    "summary": Maker("collectives", collectives_summary),
    "all_reduce": Maker("collectives", all_reduce_tables),
    "disorder": Maker("disorder", disorder_table),
    "late_rank": Maker("late_rank", late_rank_table),
    "completion_queue": Maker("completion_queue", completion_queue_table),
    **{
        f"gpu_{what}_{gpus}": Maker(f"gpu_{what}_{gpus}", gpu_collectives_table)
        for what in ("collectives", "rings")
        for gpus in (1, 2, 4)
    },
    **{f"gpu_in_place_{gpus}": Maker(f"gpu_collectives_{gpus}", gpu_in_place_table) for gpus in (1, 2, 4)},
    **{f"gpu_latency_{gpus}": Maker(f"gpu_collectives_{gpus}", gpu_latency_table) for gpus in (1, 2, 4)},
    "gpu_overheads": Maker("gpu_overheads", gpu_overheads_table),
    **{f"gpu_overlap_{gpus}": Maker(f"gpu_overlap_{gpus}", overlap_table) for gpus in (2, 4)},
    **{
        f"gpu_{what}_{gpus}": Maker(f"gpu_{what}_{gpus}", gpu_disorder_table)
        for what in ("disorder", "depleted", "controls")
        for gpus in (2, 4)
    },
}


def markdown(results: Path, names: list[str]) -> str:
    """The tables of these names of which there are results."""
    if unknown := [name for name in names if name not in MAKERS]:
        raise ValueError(f"no table is called {' or '.join(unknown)}; there are {', '.join(MAKERS)}")
    parts = []
    for maker in map(MAKERS.__getitem__, names):
        file = results / f"{maker.file}.json"
        if file.is_file():
            parts.append(maker.table(json.loads(file.read_text())))
    return "\n".join(parts)


def renewed(text: str, results: Path) -> str:
    """The page's text with new tables; raises ValueError if it has no markers, or names a table that is not there."""
    if not MARKED.search(text):
        raise ValueError("no <!-- bench --> ... <!-- /bench --> in it")

    def filled(found: re.Match[str]) -> str:
        names = (found[2] or "").split() or list(MAKERS)
        return found[1] + markdown(results, names) + found[3]

    return MARKED.sub(filled, text)


def renew(page: Path, results: Path) -> None:
    write_whole(page, renewed(page.read_text(), results))


def draw(results: Path) -> list[Path]:
    """The pictures that pages show beside the tables; those that were made."""
    from . import plots

    made = []
    for name, others in (
        ("collectives", ["gloo", "openmpi"]),
        ("gpu_collectives_2", ["nccl"]),
        ("gpu_collectives_4", ["nccl"]),
    ):
        file = results / f"{name}.json"
        if file.is_file():
            made.append(results / f"{name}_ratios.png")
            plots.plot_ratios(json.loads(file.read_text()), others, made[-1])
    return made


def command(
    results: Annotated[Path, typer.Option(help="folder of the result files")] = Path("bench/results"),
    page: Annotated[
        list[Path] | None,
        typer.Option(help="a file with the markers; may be repeated; else README.md and docs/RESULTS.md"),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="change nothing; exit with 1 if something would change")
    ] = False,
    pictures: Annotated[bool, typer.Option("--pictures", help="draw the pictures of ratios, too")] = False,
) -> None:
    """Renew the tables of README.md and docs/RESULTS.md from the result files."""
    for one in page or PAGES:
        try:
            text = one.read_text()
            new = renewed(text, results)
        except (OSError, ValueError) as error:
            refuse(f"{one}: {error}")
        if check and new != text:
            refuse(f"{one} differs from {results}: starling bench tables", 1)
        if not check:
            write_whole(one, new)
    for made in draw(results) if pictures else []:
        typer.echo(made)
