"""Plans of one's own for a process group's collectives."""

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from starling.torch import _adapter

if TYPE_CHECKING:
    from starling.ir import Plan
    from starling.lang import Program


def add_plan(
    plan: "Plan | Program | str", *, group: Any = None, sizes: tuple[int, int] | None = None
) -> None:
    """Adds a plan, a program or a plan's text to a group; every rank of it adds the same, in the same order.

    From then on ``with starling.torch.lane("name", algorithm=plan.name)`` runs it for the collective that it is for.
    sizes: of the operations that run it without being told, smallest and largest, in bytes of the larger of a rank's
    buffers; None: by name only. A program is compiled for the blocks of this rank's daemon. Raises RuntimeError if the
    plan is wrong, or needs more blocks.
    """
    from starling import ir
    from starling.lang import Program

    if isinstance(plan, Program):
        plan = plan.compile(blocks=_adapter.load().blocks() or None, verify=False)
    text = plan if isinstance(plan, str) else ir.to_text(plan)
    smallest, largest = sizes or (1, 0)
    owner = dist.group.WORLD if group is None else group
    owner._get_backend(torch.device("cpu"))._add_plan(text, smallest, largest)
