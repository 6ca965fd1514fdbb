"""The rows of DFCCL's Table 1, and the variants of each that its text or its released code leave open."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .configuration import ORDERS, Configuration, three_d
from .groups import free_groups, one_group

PAPER_ROUNDS = 32_000


@dataclass(frozen=True)
class Row:
    """One ratio of the table. `paper` is the printed ratio."""

    name: str
    paper: float
    configuration: Configuration
    variant: str = "as printed"


def _row(name: str, paper_percent: float, model: str, shape: str, disorder: float, synchronization: float = 0.0,
         scale: int = 1) -> Row:  # fmt: skip
    sizes = {"3D (4,4,4)": (4, 4, 4), "3D (8,6,64)": (8, 6, 64)}
    free = {"free 32 × 64": 64, "free 32 × 128": 128}
    if shape in sizes:
        tensor, data, pipeline = sizes[shape]
        groups, gpus = three_d(tensor, data, pipeline, 400 * scale, 1200 * scale), tensor * data * pipeline
    elif shape in free:
        groups, gpus = free_groups(free[shape], 400 * scale, 1200 * scale), free[shape]
    else:
        groups, gpus = one_group(8, 161), 8
    configuration = Configuration(
        groups=groups,
        gpus=gpus,
        model=model,
        disorder_probability=disorder,
        synchronization_probability=synchronization,
        shape=shape,
    )
    return Row(name, paper_percent / 100, configuration)


def printed_rows() -> list[Row]:
    """The table as printed. Where table and text name different GPU counts, the variants have the other one."""
    queue, sync = "single_queue", "synchronization"
    return [
        _row("Q1", 1.10, queue, "3D (4,4,4)", 1e-7),
        _row("Q2", 9.97, queue, "3D (4,4,4)", 1e-6),
        _row("Q3", 0.47, queue, "3D (8,6,64)", 1e-9),
        _row("Q4", 3.59, queue, "3D (8,6,64)", 1e-8),
        _row("Q5", 1.21, queue, "free 1 × 8", 1e-5),
        _row("Q6", 0.98, queue, "free 32 × 64", 1e-6),
        _row("Q7", 9.45, queue, "free 32 × 128", 1e-5),
        _row("Q8", 1.72, queue, "free 32 × 128", 1e-6),
        _row("S1", 0.68, sync, "3D (4,4,4)", 2e-3, 4e-3),
        _row("S2", 1.38, sync, "3D (4,4,4)", 4e-3, 4e-3),
        _row("S3", 0.32, sync, "3D (4,4,4)", 4e-3, 2e-3),
        _row("S4", 2.56, sync, "3D (4,4,4)", 4e-3, 4e-3, scale=2),
        _row("S5", 1.56, sync, "3D (8,6,64)", 8e-4, 8e-4),
        _row("S6", 0.81, sync, "free 32 × 64", 4e-6, 4e-5),
        _row("S7", 1.16, sync, "free 32 × 64", 4e-5, 4e-5),
        _row("S8", 6.56, sync, "free 32 × 64", 4e-5, 8e-5),
        _row("S9", 6.94, sync, "free 32 × 64", 4e-5, 4e-5, scale=2),
        _row("S10", 2.34, sync, "free 32 × 128", 4e-5, 4e-5),
    ]


_REPRINTED = {4e-5: 5e-5, 8e-5: 1e-4}  # what the printed free-grouping probabilities seem to come from


def variants(row: Row) -> list[Row]:
    """The row as printed and with what may have been meant, each in both orders of the lists."""
    found = [row]
    base = row.configuration
    if row.name == "Q7":
        other = replace(base, groups=free_groups(64), gpus=64, shape="free 32 × 64")
        found.append(replace(row, configuration=other, variant="64 GPUs"))
    if row.name in ("Q6", "Q7", "Q8"):
        tenth = replace(found[-1].configuration, disorder_probability=base.disorder_probability / 10)
        gpus = "64 GPUs, " if row.name == "Q7" else ""
        found.append(replace(row, configuration=tenth, variant=f"{gpus}{tenth.disorder_probability:g}"))
    if base.model == "synchronization" and base.shape.startswith("free"):
        disorder = _REPRINTED.get(base.disorder_probability, base.disorder_probability)
        sync = _REPRINTED[base.synchronization_probability]
        other = replace(base, disorder_probability=disorder, synchronization_probability=sync)
        found.append(replace(row, configuration=other, variant=f"{disorder:g} / {sync:g}"))
    return [
        replace(each, configuration=replace(each.configuration, order=order))
        for each in found
        for order in ORDERS
    ]


def all_rows() -> list[Row]:
    return [variant for row in printed_rows() for variant in variants(row)]
