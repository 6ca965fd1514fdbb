"""Pictures of benchmark results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starling.write_whole import whole

COLORS = {
    "starling": "#0072B2",
    "torch": "#56B4E9",
    "gloo": "#D55E00",
    "openmpi": "#009E73",
    "nccl": "#76B900",
}


def pyplot() -> Any:
    """matplotlib without a display."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    return plt


def _save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path) as draft:
        figure.savefig(draft, dpi=110)
    pyplot().close(figure)


def bytes_text(size: float) -> str:
    for unit in ("B", "KB", "MB"):
        if size < 1024:
            return f"{size:g} {unit}"
        size /= 1024
    return f"{size:g} GB"


def plot_collectives(doc: dict[str, Any], path: Path) -> None:
    """Time over size, one panel for each collective and number of ranks, both axes logarithmic."""
    plt = pyplot()
    rows = doc["rows"]
    collectives = list(dict.fromkeys(row["collective"] for row in rows))
    ranks = list(dict.fromkeys(row["ranks"] for row in rows))
    figure, axes = plt.subplots(
        len(ranks),
        len(collectives),
        figsize=(3.2 * len(collectives), 2.9 * len(ranks) + 0.4),
        squeeze=False,
        sharex=True,
    )
    for i, n in enumerate(ranks):
        for j, collective in enumerate(collectives):
            axis = axes[i][j]
            mine = [row for row in rows if row["ranks"] == n and row["collective"] == collective]
            for name in doc["settings"]["libraries"]:
                pairs = [
                    (row["size_bytes"], row["out_of_place"][name]["time_us"])
                    for row in mine
                    if "time_us" in row["out_of_place"][name]
                ]
                if pairs:
                    axis.loglog(
                        *zip(*pairs, strict=True), marker="o", ms=3, label=name, color=COLORS.get(name)
                    )
            axis.set_title(f"{collective}, {n} ranks", fontsize=9)
            axis.grid(alpha=0.3)
            axis.set_xscale("log", base=2)
            axis.xaxis.set_major_locator(plt.matplotlib.ticker.LogLocator(base=2, numticks=7))
            axis.xaxis.set_major_formatter(lambda size, _: bytes_text(size))
            axis.tick_params(labelsize=7)
    for row_of_axes in axes:
        row_of_axes[0].set_ylabel("time of one call (µs)", fontsize=8)
    axes[0][0].legend(fontsize=7)
    figure.suptitle(
        f"{doc['machine']['cpu']}, {doc['machine']['cores']} cores, {doc['date'][:10]}", fontsize=9
    )
    _save(figure, path)


def ratios(rows: list[dict[str, Any]], ranks: int, others: list[str]) -> dict[str, dict[int, float]]:
    """The time of the fastest of ``others`` over Starling's, out of place, by collective and size.

    The smallest sizes have one element of each rank at least: they stand at the size of broadcast next to them.
    """
    sizes = sorted({row["size_bytes"] for row in rows if row["collective"] == "broadcast"})
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        place = row["out_of_place"]
        theirs = [place[name]["time_us"] for name in others if "time_us" in place.get(name, {})]
        if row["ranks"] != ranks or not theirs or "time_us" not in place["starling"]:
            continue
        size = min(sizes, key=lambda one: abs(one - row["size_bytes"]))
        found.setdefault(row["collective"], {})[size] = min(theirs) / place["starling"]["time_us"]
    return found


def plot_ratios(doc: dict[str, Any], others: list[str], path: Path) -> None:
    """``ratios`` as tables in colours: one for each number of ranks, a line a collective, a column a size."""
    plt = pyplot()
    rows = doc["rows"]
    sizes = sorted({row["size_bytes"] for row in rows if row["collective"] == "broadcast"})
    by_ranks = {n: ratios(rows, n, others) for n in dict.fromkeys(row["ranks"] for row in rows)}
    lines = max(map(len, by_ranks.values()))
    figure, axes = plt.subplots(
        len(by_ranks),
        1,
        figsize=(1.6 + 0.62 * len(sizes), 0.5 + len(by_ranks) * (0.7 + 0.34 * lines)),
        squeeze=False,
    )
    for axis, (n, found) in zip(axes[:, 0], by_ranks.items(), strict=True):
        table = [[of_one.get(size, float("nan")) for size in sizes] for of_one in found.values()]
        axis.imshow(table, aspect="auto", cmap="RdBu", norm=plt.matplotlib.colors.LogNorm(1 / 4, 4))
        for line, of_one in enumerate(found.values()):
            for size, ratio in of_one.items():
                text = f"{ratio:.0f}" if ratio >= 9.95 else f"{ratio:.{2 if ratio < 2 else 1}f}"
                color = "black" if 1 / 2 < ratio < 2 else "white"
                axis.text(sizes.index(size), line, text, ha="center", va="center", size=7, color=color)
        axis.set_xticks(range(len(sizes)), [bytes_text(size) for size in sizes], size=7)
        axis.set_yticks(range(len(found)), found, size=8)
        axis.set_title(f"{n} ranks", fontsize=9)
        axis.tick_params(length=0)
    names = {"nccl": "NCCL", "openmpi": "Open MPI"}
    machine = doc["machine"]
    where = machine.get("gpus") or f"{machine['cores']} cores"
    figure.suptitle(
        f"time of {' or '.join(names.get(name, name) for name in others)} / time of Starling; blue: Starling is ahead\n"
        f"{machine['cpu']}, {where}, commit {doc['commit']}, {doc['date'][:10]}",
        fontsize=8,
    )
    _save(figure, path)


def plot_late_rank(doc: dict[str, Any], path: Path) -> None:
    """As DFCCL Fig. 11: for each policy the parks and the queue length of every collective, in launch order."""
    plt = pyplot()
    rows = doc["rows"]
    figure, axes = plt.subplots(
        len(rows), 2, figsize=(10, 2.3 * len(rows)), sharex=True, sharey="col", squeeze=False
    )
    for pair, row in zip(axes, rows, strict=True):
        for axis, key, color in zip(
            pair, ("parks_by_collective", "queue_by_collective"), ("#D55E00", "#0072B2"), strict=True
        ):
            axis.bar(range(len(row[key])), row[key], color=color, width=0.9)
            axis.grid(alpha=0.3, axis="y")
        pair[0].set_ylabel(f"{row['policy']}\n{row['time_ms']:.2f} ms a burst", fontsize=9)
    axes[0][0].set_title("parks of each collective", fontsize=10)
    axes[0][1].set_title("task queue when it was read", fontsize=10)
    for axis in axes[-1]:
        axis.set_xlabel("collective, in launch order")
    settings = doc["settings"]
    figure.suptitle(
        f"One late rank of {settings['ranks']} ({settings['delay_ms']} ms, then {settings['gap_us']} µs before each "
        "launch), seen from rank 0",
        fontsize=10,
    )
    _save(figure, path)


def plot_disorder(doc: dict[str, Any], path: Path) -> None:
    """Time of an iteration, a group of bars for each number of ranks."""
    plt = pyplot()
    rows = doc["rows"]
    ranks = list(dict.fromkeys(row["ranks"] for row in rows))
    cases = list(dict.fromkeys(row["case"] for row in rows))
    figure, axis = plt.subplots(figsize=(9, 3.8))
    width = 0.8 / len(cases)
    for index, case in enumerate(cases):
        mine = [row for row in rows if row["case"] == case]
        places = [ranks.index(row["ranks"]) + (index - len(cases) / 2) * width for row in mine]
        bars = axis.bar(places, [row["time_ms"] for row in mine], width, align="edge", label=case)
        axis.bar_label(bars, [f"{row['ratio']:.2f}" for row in mine], fontsize=6)
    axis.set_xticks(range(len(ranks)), [f"{n} ranks" for n in ranks])
    axis.set_ylabel("ms for eight all-reduces")
    axis.legend(fontsize=7)
    axis.grid(alpha=0.3, axis="y")
    _save(figure, path)


def plot_overlap(doc: dict[str, Any], path: Path) -> None:
    """Slowdowns of computation (left) and of the collective (right), a row of panels for each kernel."""
    plt = pyplot()
    rows = doc["rows"]
    kernels = list(dict.fromkeys(row["kernel"] for row in rows))
    collectives = list(dict.fromkeys(row["collective"] for row in rows))
    libraries = list(dict.fromkeys(row["library"] for row in rows))
    figure, axes = plt.subplots(
        len(kernels), 2, figsize=(11, 2.6 * len(kernels) + 0.4), sharex=True, squeeze=False
    )
    width = 0.8 / len(libraries)
    for pair, kernel in zip(axes, kernels, strict=True):
        for axis, key in zip(pair, ("kernel_slowdown", "collective_slowdown"), strict=True):
            for index, library in enumerate(libraries):
                found = {
                    row["collective"]: row[key]
                    for row in rows
                    if (row["kernel"], row["library"]) == (kernel, library)
                }
                places = [k + (index - len(libraries) / 2) * width for k in range(len(collectives))]
                heights = [found.get(name, 0) for name in collectives]
                axis.bar(places, heights, width, align="edge", label=library, color=COLORS.get(library))
            axis.axhline(1, color="black", lw=0.6)
            axis.grid(alpha=0.3, axis="y")
            axis.set_xticks(range(len(collectives)), collectives, rotation=20, fontsize=8)
        pair[0].set_ylabel(kernel, fontsize=9)
    axes[0][0].set_title("computation: times as long beside the collective", fontsize=10)
    axes[0][1].set_title("collective: times as long beside computation", fontsize=10)
    axes[0][0].legend(fontsize=7)
    settings = doc["settings"]
    figure.suptitle(
        f"{settings['ranks']} GPUs, {bytes_text(settings['bytes'])}; {doc['machine'].get('gpus', '')}",
        fontsize=9,
    )
    _save(figure, path)
