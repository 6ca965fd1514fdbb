"""`starling bench gpu`: collectives on this host's GPUs, beside the NCCL that PyTorch carries, in the same ranks."""

from __future__ import annotations

import importlib.util
import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from . import columns, gpu_devices
from .convention import COLLECTIVES, ROOTED, Point, parse_bytes, sizes
from .measure import Timing
from .options import Json, Programs, finish, refuse, speaker, words
from .programs import MissingProgramError, find_program
from .results import document

PROGRAM = "gpu.collective_bench"
MEASURED = [name for name in COLLECTIVES if name not in ("gather", "scatter", "barrier")]
QUICK_BYTES = [8, 4 << 10, 256 << 10, 4 << 20, 64 << 20]
NCCL_MODES = [
    "default",
    "registered",
    "symmetric",
    "zero_cta",
    "graph",
    "registered_graph",
    "symmetric_graph",
]
OUR_MODES = ["eager", "graph"]
STEP_LIMIT_S = 40  # the program ends itself if one step takes longer


class RunFailedError(RuntimeError):
    """The program ended with an error, or was ended; the rows until then are there."""


@dataclass(frozen=True)
class Sweep:
    """What to measure."""

    gpus: int
    collectives: list[str]
    sizes: list[int]
    type_name: str = "float32"
    libraries: tuple[str, ...] = ("starling", "nccl")
    ranks_as: str = "processes"
    repetitions: int = 3
    slice_ms: float = 3.0
    in_place: bool = True
    check: bool = True
    timeout_s: float = 300.0

    def arguments(self) -> list[str]:
        return [
            f"gpus={self.gpus}",
            f"as={self.ranks_as}",
            f"kinds={','.join(self.collectives)}",
            f"sizes={','.join(map(str, self.sizes))}",
            f"type={self.type_name}",
            f"libraries={','.join(self.libraries)}",
            f"repetitions={self.repetitions}",
            f"slice_us={self.slice_ms * 1e3:g}",
            f"in_place={int(self.in_place)}",
            f"check={int(self.check)}",
            f"limit_s={STEP_LIMIT_S}",
        ]


def with_nccl(environment: dict[str, str]) -> dict[str, str]:
    """The environment in which the loader finds PyTorch's libnccl.so.2, if there is one."""
    try:
        found = importlib.util.find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        found = None
    folders = [f"{place}/lib" for place in (found.submodule_search_locations or [])] if found else []
    known = environment.get("LD_LIBRARY_PATH", "")
    return {**environment, "LD_LIBRARY_PATH": ":".join([*folders, *([known] if known else [])])}


def lines_of(command: list[str], timeout_s: float) -> Iterator[str]:
    """Lines as they come. Raises RunFailedError if the program fails, or takes longer than it may."""
    deadline = time.monotonic() + timeout_s
    process = subprocess.Popen(
        command,
        env=with_nccl(dict(os.environ)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    said: list[str] = []
    buffer = b""
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while selector.select(max(deadline - time.monotonic(), 0)):
                block = os.read(process.stdout.fileno(), 1 << 16)
                if not block:
                    break
                *lines, buffer = (buffer + block).split(b"\n")
                for line in lines:
                    text = line.decode(errors="replace")
                    if text.startswith("{"):
                        yield text
                    else:
                        said.append(text)
            else:
                raise RunFailedError(f"not finished within {timeout_s:.0f} s; {' | '.join(said[-5:])}")
        code = process.wait(timeout=max(deadline - time.monotonic(), 5))
        if code != 0:
            raise RunFailedError(f"exit code {code}: {' | '.join(said[-8:]) or 'no word'}")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def point_of(row: dict[str, Any], head: dict[str, Any], sweep: Sweep) -> Point:
    root = 0 if row["collective"] in ROOTED else -1
    return Point(
        row["collective"], head["gpus"], sweep.type_name, "sum", root, row["size_bytes"], row["count"]
    )


def libraries_of(compare: list[str], nccl: list[str], ours: list[str]) -> tuple[str, ...]:
    """The program's names: ours first. Raises ValueError for a mode that is none."""
    for asked, known, option in ((nccl, NCCL_MODES, "--nccl"), (ours, OUR_MODES, "--ours")):
        if not asked or (strange := [mode for mode in asked if mode not in known]):
            said = f"no mode '{strange[0]}'" if asked else "no mode"
            raise ValueError(f"{said}: {option} takes some of {', '.join(known)}")
    mine = [f"starling:{mode}" if mode != "eager" else "starling" for mode in ours]
    theirs = [f"nccl:{mode}" if mode != "default" else "nccl" for mode in nccl]
    return (*mine, *(name for other in compare for name in (theirs if other == "nccl" else [other])))


def best_of(timings: dict[str, Timing], library: str) -> tuple[str, float] | None:
    """Which of a library's modes is fastest, and its seconds."""
    times = [
        (timing.seconds, name)
        for name, timing in timings.items()
        if name.split(":")[0] == library and timing.seconds
    ]
    return min(times)[::-1] if times else None


def timings_of(row: dict[str, Any], libraries: tuple[str, ...], missing: dict[str, str]) -> dict[str, Timing]:
    found = {}
    for name in libraries:
        if name in row:
            samples = [sample / 1e6 for sample in row[name]["samples_us"]]
            found[name] = Timing(samples, row[name].get("wrong"), name)
        else:
            found[name] = Timing(unsupported=missing.get(name, "no such operation"))
    return found


def joined(
    at: Point, places: list[dict[str, Any]], libraries: tuple[str, ...], missing: dict[str, str]
) -> tuple[dict[str, Any], str]:
    """The JSON row of one point and its line, from the program's rows out of place and in place."""
    timings = [timings_of(place, libraries, missing) for place in places]
    row = columns.row(at, timings[0], timings[1] if len(places) > 1 else None)
    for name, place, of_place in zip(("out_of_place", "in_place"), places, timings, strict=False):
        for library in libraries:
            for key in ("call_us", "latency_us", "cpu_us", "daemon_blocks", "parks"):
                if key in place.get(library, {}):
                    row[name][library][key] = place[library][key]
        ours, best = (best_of(of_place, library) for library in ("starling", "nccl"))
        if ours and best and len(libraries) > 2:
            row[name]["best"] = {"starling": ours[0], "nccl": best[0], "ratio": round(best[1] / ours[1], 3)}
    line = columns.line(at, timings[0], timings[1] if len(places) > 1 else None, libraries[0])
    mine, theirs = (row["out_of_place"].get(name, {}) for name in (libraries[0], "nccl"))
    for value in (mine.get("latency_us"), mine.get("cpu_us"), theirs.get("latency_us")):
        line += f" {columns.microseconds(value / 1e6 if value else None):>9}"
    if "best" in row["out_of_place"]:
        best_modes = row["out_of_place"]["best"]
        line += f" {best_modes['ratio']:>6.2f} {best_modes['starling']} / {best_modes['nccl']}"
    return row, line


def header(libraries: tuple[str, ...]) -> list[str]:
    lines = columns.header(list(libraries[1:]))
    lines[1] += f" {'alone':>9} {'from CPU':>9} {'nccl al.':>9}"
    if len(libraries) > 2:
        lines[1] += f" {'best':>6} of both's modes"
    return lines


def measure(sweep: Sweep, programs: Path | None, say: Callable[[str], None]) -> dict[str, Any]:
    """Runs the program; the document, with ``failure`` in it if the program did not come to its end."""
    head: dict[str, Any] = {"gpus": sweep.gpus}
    rows: list[dict[str, Any]] = []
    more: dict[str, Any] = {}
    missing: dict[str, str] = {}
    pending: list[dict[str, Any]] = []
    began = time.monotonic()

    def finish_point() -> None:
        if pending:
            row, line = joined(point_of(pending[0], head, sweep), pending, sweep.libraries, missing)
            rows.append(row)
            say(line)
            pending.clear()

    try:
        for text in lines_of([str(find_program(PROGRAM, programs)), *sweep.arguments()], sweep.timeout_s):
            found = json.loads(text)
            if "device" in found:
                head = found
            elif "missing" in found:
                missing |= found["missing"]
                for name, why in found["missing"].items():
                    say(f"# {name}: not measured, {why}")
            elif "statistics" in found:
                more |= found
            else:
                if not found["in_place"]:
                    finish_point()
                    if not rows or rows[-1]["collective"] != found["collective"]:
                        say(
                            f"# {found['collective']}, {head['gpus']} x {head['device']}, ranks are {head['as']}"
                        )
                        for one in header(sweep.libraries):
                            say(one)
                pending.append(found)
    except RunFailedError as error:
        more["failure"] = str(error)
    finish_point()
    settings = {
        **head,
        "libraries": list(sweep.libraries),
        "repetitions": sweep.repetitions,
        "slice_ms": sweep.slice_ms,
        **({"missing": missing} if missing else {}),
    }
    return document("gpu", settings, rows, seconds=round(time.monotonic() - began, 1), **more)


def command(
    gpus: Annotated[int, typer.Option("-n", "--gpus", min=1, help="the first so many of this host")] = 2,
    collective: Annotated[
        str, typer.Option("--collective", "-C", help="all, or some of: " + ", ".join(MEASURED))
    ] = "all",
    first: Annotated[str, typer.Option("-b", "--minbytes", help="first size")] = "8",
    last: Annotated[str, typer.Option("-e", "--maxbytes", help="last size")] = "1G",
    factor: Annotated[
        float, typer.Option("-f", "--stepfactor", help="size times this from line to line")
    ] = 4,
    quick: Annotated[bool, typer.Option(help="five sizes up to 64 MB, instead of all")] = False,
    type_name: Annotated[str, typer.Option("-d", "--datatype", help="float32 or bfloat16")] = "float32",
    compare: Annotated[str, typer.Option(help="nccl, or nothing")] = "nccl",
    nccl: Annotated[
        str, typer.Option(help="modes of NCCL, separated by commas: " + ", ".join(NCCL_MODES))
    ] = "default",
    ours: Annotated[str, typer.Option(help="eager, graph, or both; the first has the columns")] = "eager",
    ranks_as: Annotated[str, typer.Option("--as", help="processes, or threads of one")] = "processes",
    repetitions: Annotated[int, typer.Option(min=1, help="their median counts")] = 3,
    slice_ms: Annotated[float, typer.Option("--slice-ms", min=0.1, help="time of a repetition")] = 3.0,
    check: Annotated[bool, typer.Option("--check/--no-check", "-c", help="check every element")] = True,
    in_place: Annotated[bool, typer.Option("--in-place/--no-in-place", help="measure both")] = True,
    timeout_s: Annotated[float, typer.Option("--timeout", help="seconds for all")] = 300,
    programs: Programs = None,
    json_path: Json = None,
) -> None:
    """Collectives on GPUs, out of place and in place, with NCCL in the same run and the same ranks.

    time: one of many in a stream, where a kernel that reads its result stands behind each. alone: one call in a stream
    and the stream's synchronization, seen from the CPU. from CPU: submitted and waited for without a stream.
    best: how many times longer NCCL's fastest mode takes than our fastest, and which they are.

    Exit codes: 0 measured and right; 1 wrong results, or the run failed (what was measured is written); 2 options to
    change.
    """
    names = MEASURED if collective == "all" else words(collective)
    for name in names:
        if name not in MEASURED:
            refuse(f"no collective '{name}'; choose from {', '.join(MEASURED)}")
    if type_name not in ("float32", "bfloat16") or ranks_as not in ("processes", "threads"):
        refuse("-d takes float32 or bfloat16; --as processes or threads")
    try:
        wanted = QUICK_BYTES if quick else sizes(parse_bytes(first), parse_bytes(last), factor, 0)
        libraries = libraries_of(words(compare), words(nccl), words(ours))
        sweep = Sweep(gpus, names, wanted, type_name, libraries, ranks_as)
        sweep = replace(
            sweep,
            repetitions=repetitions,
            slice_ms=slice_ms,
            check=check,
            in_place=in_place,
            timeout_s=timeout_s,
        )
        gpu_devices.require(gpus)
        find_program(PROGRAM, programs)
        doc = measure(sweep, programs, speaker(json_path))
    except (ValueError, MissingProgramError) as error:
        refuse(error)
    finish(doc, json_path)
    _judge(doc)


def _judge(doc: dict[str, Any]) -> None:
    from .collectives import wrong_rows

    for text in wrong_rows(doc)[:20]:
        typer.secho(f"wrong: {text}", fg="red", err=True)
    if "failure" in doc:
        refuse(doc["failure"], 1)
    if wrong_rows(doc):
        raise typer.Exit(1)
