"""Checks of what goes wrong around CUDA graphs with collectives; as ``graph_checks.py``.

Whatever happens, streams that replay go on.
"""

from __future__ import annotations

import datetime
import os
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from graph_checks import captured, replay_and_expect
from torch_checks import Place, error_of, expect

import starling.torch

CHECKS: dict[str, Callable[[Place], None]] = {}


def check(function: Callable[[Place], None]) -> Callable[[Place], None]:
    CHECKS[function.__name__] = function
    return function


@check
def wait_outside(p: Place) -> None:
    tensor = p.filled(0)
    works = []

    def body() -> None:
        works.append(dist.all_reduce(tensor, async_op=True))
        works[0].wait()

    graph = captured(body)
    try:
        works[0].wait()
    except Exception as error:
        assert "capture" in str(error), error
    else:
        raise AssertionError("a wait outside of the capture says nothing")
    replay_and_expect(p, graph, tensor, 2, "after a refused wait")


@check
def mismatch(p: Place) -> None:
    """Ranks capture different operations: one that comes later is told; streams of replays go on; others still work."""
    tensor = p.filled(1, 1000 * (p.rank + 1))
    dist.barrier()
    error = ""
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            dist.all_reduce(tensor)
    except Exception as caught:
        error = str(caught)
    told = torch.tensor([1.0 if error else 0.0], device=p.device)
    dist.all_reduce(told)
    assert float(told) >= 1, "no rank was told"
    assert not error or "match" in error, error
    if not error:
        graph.replay()
        torch.cuda.synchronize()


@check
def alone(p: Place) -> None:
    """One rank replays once more than the others: its stream goes on after the timeout."""
    group = dist.new_group(range(p.size), timeout=datetime.timedelta(seconds=3))
    tensor = p.filled(p.rank)
    graph = captured(lambda: dist.all_reduce(tensor, group=group))
    graph.replay()
    expect(tensor, p.total(float), "the replay of all")
    begin = time.monotonic()
    if p.rank == 0:
        graph.replay()
        torch.cuda.synchronize()
        took = time.monotonic() - begin
        assert 2 < took < 8, f"the stream went on after {took:.1f} s"
        text = error_of(lambda: starling.torch.check(group), 3)
        assert "all_reduce" in text and "3 s" in text, text
        del graph
        time.sleep(0.2)  # its lane goes with it
        assert error_of(lambda: starling.torch.check(group), 3) == text
    dist.barrier()


@check
def group_is_gone(p: Place) -> None:
    """A replay after its group was destroyed does nothing, and does not hang."""
    group = dist.new_group(range(p.size))
    tensor = p.filled(p.rank)
    graph = captured(lambda: dist.all_reduce(tensor, group=group))
    graph.replay()
    expect(tensor, p.total(float), "before")
    dist.barrier()
    dist.destroy_process_group(group)
    dist.barrier()
    graph.replay()
    torch.cuda.synchronize()
    dist.barrier()


@check
def killed(p: Place) -> None:
    """The last rank dies: the streams of the others' replays go on, and who asks is told. Ends their process."""
    tensor = p.filled(1, 100_000)
    graph = captured(lambda: dist.all_reduce(tensor))
    graph.replay()
    torch.cuda.synchronize()
    starling.torch.check()
    dist.barrier()
    if p.rank == p.size - 1:
        os._exit(0)
    begin = time.monotonic()
    graph.replay()
    torch.cuda.synchronize()
    took = time.monotonic() - begin
    assert took < 10, f"the stream went on after {took:.1f} s"
    text = error_of(starling.torch.check, 3)
    assert f"rank {p.size - 1}" in text and "died" in text, text


if __name__ == "__main__":
    import batches

    sys.exit(batches.main("graph_failures", list(CHECKS)))
