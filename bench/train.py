"""Training with Starling beside NCCL or gloo: samples a second and loss curves, in the same processes.

    python bench/train.py                                    two GPUs, all models, Starling and NCCL
    python bench/train.py --models resnet50 --ways "unbucketed;unbucketed, own order" --iterations 200
    python bench/train.py --tiny --models gpt2               on CPUs, Starling and gloo: tries the machinery
    python bench/train.py --models gpt2 --profile            where the time goes, too

Every rank is a process. One after the other they train each model in each way with each library, from the same
weights on the same synthetic data, so loss curves have to agree. Time is the GPU's from step to step; cv is the
standard deviation of steps over their mean. Data is on the device before: drawing it is not measured.

Ways:
{ways}

Exit codes: 0 measured; 1 the run failed, or loss curves differ (what was measured is written); 2 options to change.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # `training`, for this process and its ranks

MOST_APART = 0.05  # of losses, as a part of the first one: half precision, and sums in another order


def parse(arguments: list[str]) -> argparse.Namespace:
    from training.rank import CASES

    ways = "\n".join(f"  {name:<30} {text}" for name, text in CASES.items())
    parser = argparse.ArgumentParser(
        description=str(__doc__).format(ways=ways), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "-n",
        "--ranks",
        type=int,
        default=2,
        help="processes, one a GPU; tensor parallel and pipeline take even numbers",
    )
    add(
        "--backends",
        "--backend",
        default="",
        help="separated by commas; default starling,nccl, on CPUs starling,gloo",
    )
    add("--models", default="resnet50,vit_b16,gpt2", help="some of them")
    add(
        "--ways",
        default="",
        help="names of ways, separated by semicolons; default: all that make sense for a model",
    )
    add("--iterations", type=int, default=40, help="steps that are measured (200 for figures to publish)")
    add("--warmup", type=int, default=5, help="steps before them")
    add(
        "--batch",
        type=int,
        default=0,
        help="samples of a rank and step; 0: of the model, small enough for many GPUs",
    )
    add("--seed", type=int, default=1, help="of weights, data and random orders")
    add("--tiny", action="store_true", help="models of some thousand parameters, on CPUs")
    add(
        "--profile",
        action="store_true",
        help="also where the time of rank 0's steps goes: kernels, calls of CUDA, CPU time by thread",
    )
    add(
        "--traces",
        type=Path,
        metavar="FOLDER",
        help="as --profile; the traces of all ranks go there, for Perfetto",
    )
    add("--timeout", type=float, default=0, help="seconds for all; default: 300, with --tiny 100")
    add("--json", metavar="FILE", help="the results; -: to standard output, and nothing else")
    add("--plot", type=Path, help="draw the loss curves into this PNG")
    options = parser.parse_args(arguments)
    options.timeout = options.timeout or (100 if options.tiny else 300)
    options.backends = options.backends or ("starling,gloo" if options.tiny else "starling,nccl")
    options.ways = options.ways or ";".join(CASES)
    for what, chosen, known in (
        ("way", options.ways.split(";"), list(CASES)),
        ("model", options.models.split(","), ["resnet50", "vit_b16", "gpt2"]),
        ("backend", options.backends.split(","), ["starling", "gloo"] + ([] if options.tiny else ["nccl"])),
    ):
        for name in chosen:
            if name not in known:
                parser.error(f"no {what} '{name}'; choose from {', '.join(known)}")
    if options.ranks < 2 or options.iterations < 2:
        parser.error("at least two ranks and two iterations")
    return options


def measure(options: argparse.Namespace, say: Any) -> tuple[list[dict[str, Any]], str]:
    """Rows as rank 0 found them, and what went wrong, "" if nothing did."""
    from starling.bench import gpu_processes

    rows: list[dict[str, Any]] = []
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    with tempfile.TemporaryDirectory(prefix="starling-train-") as name:
        folder = Path(name)
        command = [sys.executable, "-m", "training.rank", "--folder", name, "--size", str(options.ranks)]
        command += ["--device", "cpu" if options.tiny else "cuda", "--tiny", str(int(options.tiny))]
        command += ["--profile", str(int(options.profile or options.traces is not None))]
        if options.traces is not None:
            options.traces.mkdir(parents=True, exist_ok=True)
            command += ["--traces", str(options.traces.resolve())]
        command += ["--models", options.models.replace(",", "|"), "--ways", options.ways.replace(";", "|")]
        command += ["--libraries", options.backends.replace(",", "|"), "--limit", str(options.timeout - 5)]
        for number in ("iterations", "warmup", "seed", "batch"):
            command += [f"--{number}", str(getattr(options, number))]

        def look() -> None:
            for of_ranks in list(gpu_processes.reported(folder, options.ranks))[len(rows) :]:
                rows.append(of_ranks[0])
                say(of_ranks[0])

        failure = gpu_processes.run(command, options.ranks, folder, options.timeout, look)
    return rows, failure


def disagreements(rows: list[dict[str, Any]]) -> list[str]:
    """Loss curves of one model and way that are further apart than rounding explains."""
    found = []
    curves: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        # Whatever the order of launches, sums are the same.
        first = curves.setdefault(
            (row["model"], "data parallel" if "bucketed" in row["way"] else row["way"].split(",")[0]), row
        )
        apart = [abs(a - b) for a, b in zip(first["losses"], row["losses"], strict=True)]
        if not all(each <= MOST_APART * abs(first["losses"][0]) for each in apart):  # nor is NaN
            found.append(
                f"{row['model']}, {row['way']}: the losses of {row['library']} and of {first['library']} "
                f"({first['way']}) are {max(apart):.3g} apart"
            )
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """A line for each model and way: samples a second of each library, with the cv, and Starling's over the other's."""
    libraries = list(dict.fromkeys(row["library"] for row in rows))
    lines = [
        f"{'model':<9} {'way':<30} "
        + " ".join(f"{name + ', 1/s':>18}" for name in libraries)
        + "   ratio    loss"
    ]
    for model, way in dict.fromkeys((row["model"], row["way"]) for row in rows):
        found = {row["library"]: row for row in rows if (row["model"], row["way"]) == (model, way)}
        cells = [
            f"{found[name]['samples_per_s']:>10.1f} ±{100 * found[name]['cv']:>5.1f}%"
            if name in found
            else f"{'-':>18}"
            for name in libraries
        ]
        rates = [found[name]["samples_per_s"] for name in libraries if name in found]
        ratio = f"{rates[0] / rates[1]:.3f}" if len(rates) == 2 else "-"
        losses = [row["losses"] for row in found.values()]
        curve = f"{losses[0][0]:.3f} to " + " / ".join(f"{each[-1]:.3f}" for each in losses)
        lines.append(f"{model:<9} {way:<30} {' '.join(cells)} {ratio:>7}    {curve}")
    return "\n".join(lines)


def profile_text(row: dict[str, Any]) -> str:
    """What --profile has found of one case."""
    found = row["profile"]
    lines = [
        f"{row['model']}, {row['way']}, {row['library']}: a step {row['median_step_ms']:.2f} ms; with a profiler "
        f"{found['step_ms']:.2f} ms, in {found['computing_ms']:.2f} of which something computes"
    ]
    for entry in [*found["kernels"], *found["calls"]]:
        lines.append(
            f"  {entry['ms']:>9.3f} ms {entry['count']:>8.1f} times {entry['us_each']:>10.2f} us  {entry['name']}"
        )
    for thread in found["threads"]:
        lines.append(
            f"  {thread['cpu_ms']:>9.3f} ms of a core {thread['sleeps']:>8.1f} sleeps "
            f"{thread['preempted']:>6.1f} times preempted  {thread['thread']}"
        )
    return "\n".join(lines)


def plot(doc: dict[str, Any], path: Path) -> None:
    """Loss curves, a panel for each model, a line for each way and library."""
    from starling.bench.plots import COLORS, pyplot
    from starling.write_whole import whole

    plt = pyplot()
    rows = doc["rows"]
    models = list(dict.fromkeys(row["model"] for row in rows))
    ways = list(dict.fromkeys(row["way"] for row in rows))
    styles = ["-", "--", ":", "-."]
    figure, axes = plt.subplots(1, len(models), figsize=(5 * len(models), 3.6), squeeze=False)
    for axis, model in zip(axes[0], models, strict=True):
        for row in rows:
            if row["model"] == model:
                style = styles[ways.index(row["way"]) % len(styles)]
                label = f"{row['library']}, {row['way']}"
                axis.plot(row["losses"], style, lw=1, label=label, color=COLORS.get(row["library"]))
        axis.set_title(model, fontsize=10)
        axis.set_xlabel("step")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=6)
    axes[0][0].set_ylabel("loss")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path) as draft:
        figure.savefig(draft, dpi=110)
    plt.close(figure)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from starling.bench import gpu_devices, results

    console = Console(stderr=True)
    if not options.tiny and (why := gpu_devices.lacking(options.ranks)):
        console.print(f"refused: {why}; or try --tiny")
        return 2
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    ) as progress:
        task = progress.add_task("ranks start")

        def say(row: dict[str, Any]) -> None:
            text = f"{row['model']}, {row['way']}, {row['library']}: {row['samples_per_s']:.1f} samples/s"
            progress.update(task, description=f"after {text}")
            if not console.is_terminal:
                console.print(
                    f"# {text} ±{100 * row['cv']:.1f}%, loss {row['losses'][-1]:.3f}", highlight=False
                )

        rows, failure = measure(options, say)
    apart = disagreements(rows)
    if rows and options.json != "-":
        print(table(rows))
        for row in rows:
            if "profile" in row:
                print(profile_text(row))
    settings = {
        key: getattr(options, key)
        for key in ("ranks", "backends", "iterations", "warmup", "seed", "batch", "tiny")
    }
    more = {**({"failure": failure} if failure else {}), **({"apart": apart} if apart else {})}
    doc = results.document("train", settings, rows, **more)
    if options.json == "-":
        print(json.dumps(doc, indent=1))
    elif options.json:
        results.write(Path(options.json), doc)
    if options.plot and rows:
        plot(doc, options.plot)
    for text in [*apart, *([failure] if failure else [])]:
        console.print(text, style="red", highlight=False, markup=False)
    return 1 if failure or apart else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
