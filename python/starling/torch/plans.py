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

    From then on ``with starling.torch.lane("name", algorithm=plan.name)`` runs it for the collective that it is for,
    and ``run_plan`` if that is one of your own.
    sizes: of the operations that run it without being told, smallest and largest, in bytes of the larger of a rank's
    buffers; None: by name only. A program is compiled for the blocks of this rank's daemon. Raises RuntimeError if the
    plan is wrong, or needs more blocks.
    """
    from starling import ir
    from starling.lang import Program

    if isinstance(plan, Program):
        plan = plan.compile(blocks=_adapter.load().blocks() or None, verify=False)
    plan = ir.parse(plan) if isinstance(plan, str) else plan
    smallest, largest = sizes or (1, 0)
    _backend(group)._add_plan(
        ir.to_text(plan), smallest, largest, plan.name, plan.input_groups, plan.output_groups
    )


def run_plan(
    name: str,
    input: torch.Tensor,
    output: torch.Tensor | None = None,
    *,
    group: Any = None,
    op: Any = dist.ReduceOp.SUM,
    async_op: bool = False,
) -> "dist.Work | None":
    """Runs the collective of your own whose plan was added under this name, in the lane of the calling thread.

    Every rank of the group calls it, with tensors of the CPU of one type: each holds the plan's groups, all equally
    long. output=None: in place, for plans that are. async_op: gives a Work, and the tensors stay alive until it is
    complete; else waits, and gives None. Raises RuntimeError for tensors that do not fit the plan, and on all ranks
    torch.distributed.DistBackendError where they differ between ranks.
    """
    work = _backend(group)._run_plan(name, input, input if output is None else output, op, async_op)
    if async_op:
        return work
    work.wait()
    return None


def _backend(group: Any) -> Any:
    owner = dist.group.WORLD if group is None else group
    return owner._get_backend(torch.device("cpu"))
