"""Plans of one's own for a process group's collectives."""

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from starling.torch.groups import backend_of

if TYPE_CHECKING:
    from starling.ir import Plan
    from starling.lang import Program


def add_plan(
    plan: "Plan | Program | str",
    *,
    group: Any = None,
    sizes: tuple[int, int] | None = None,
    device: "torch.device | str" = "cpu",
) -> None:
    """Adds a plan, a program or a plan's text to a group; every rank of it adds the same, in the same order.

    From then on ``with starling.torch.lane("name", algorithm=plan.name)`` runs it for the collective that it is for,
    and ``run_plan`` if that is one of your own.
    sizes: of the operations that run it without being told, smallest and largest, in bytes of the larger of a rank's
    buffers; None: those of the plan, if its program (``sizes=``) or MSCCL XML says so, else by name only.
    device: of the tensors that it is for: "cpu", or this rank's GPU ("cuda": the current one). A program is compiled
    for the blocks of the daemon there. Raises RuntimeError if the plan is wrong, or needs more blocks.
    """
    from starling import ir
    from starling.lang import Program

    backend, place = backend_of(group), torch.device(device)
    if place.type == "cuda" and place.index is None:
        place = torch.device("cuda", torch.cuda.current_device())
    if isinstance(plan, Program):
        plan = plan.compile(blocks=backend._daemon_blocks(place), verify=False)
    plan = ir.parse(plan) if isinstance(plan, str) else plan
    smallest, largest = sizes or plan.sizes or (1, 0)
    backend._add_plan(
        ir.to_text(plan), smallest, largest, plan.name, plan.input_groups, plan.output_groups, place
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

    Every rank of the group calls it, with tensors of one type on the device that the plan was added for: each holds the
    plan's groups, all equally long. output=None: in place, for plans that are. async_op: gives a Work, and the tensors
    stay alive until it is complete; else waits (on CUDA tensors the current stream does), and gives None. Raises
    RuntimeError for tensors that do not fit the plan, and on all ranks
    torch.distributed.DistBackendError where they differ between ranks.
    """
    work = backend_of(group)._run_plan(name, input, input if output is None else output, op, async_op)
    if async_op:
        return work
    work.wait()
    return None
