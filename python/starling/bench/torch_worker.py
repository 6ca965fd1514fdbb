"""One rank of ``torch.distributed`` under ``starling bench``: PyTorch's gloo, or backend starling through PyTorch.

The same measurement as the C++ programs' (``bench/collective_worker.h``), with the same test data. Started as
``python -m starling.bench.torch_worker`` with the launcher's environment (RANK, WORLD_SIZE, MASTER_ADDR, ...).
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

Run = Callable[[], Any]


class UnsupportedError(Exception):
    """This backend has no such operation."""


OPS = {
    "sum": dist.ReduceOp.SUM,
    "prod": dist.ReduceOp.PRODUCT,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
    "avg": dist.ReduceOp.AVG,
    "band": dist.ReduceOp.BAND,
    "bor": dist.ReduceOp.BOR,
    "bxor": dist.ReduceOp.BXOR,
}
INTEGER_OPS = {"band": torch.bitwise_and, "bor": torch.bitwise_or, "bxor": torch.bitwise_xor}


class Call:
    """One collective on its buffers; counts as in ``<starling/starling.h>``."""

    def __init__(self, values: dict[str, str], rank: int, size: int) -> None:
        self.kind = values["kind"]
        self.dtype: torch.dtype = getattr(torch, values["type"])
        self.op_name = values["op"]
        self.root = int(values["root"])
        self.count = int(values["count"])
        self.in_place = values["in_place"] != "0"
        self.rank = rank
        self.size = size
        if self.op_name not in OPS:
            raise UnsupportedError(f"torch.distributed has no {self.op_name}")
        n, at_root = size * self.count, rank == self.root
        many_in = self.kind in ("reduce_scatter", "all_to_all") or (self.kind == "scatter" and at_root)
        many_out = self.kind in ("all_gather", "all_to_all") or (self.kind == "gather" and at_root)
        self.input = torch.zeros(n if many_in else self.count, dtype=self.dtype)
        self.output = torch.zeros(n if many_out else self.count, dtype=self.dtype)
        if self.in_place:
            self._overlay(many_in, many_out)

    def _overlay(self, many_in: bool, many_out: bool) -> None:
        if self.kind in ("all_to_all", "send_recv", "barrier"):
            raise UnsupportedError("not in place")
        mine = slice(self.rank * self.count, (self.rank + 1) * self.count)
        if many_in:
            self.output = self.input[mine]
        elif many_out:
            self.input = self.output[mine]
        else:
            self.input = self.output

    def fill(self) -> None:
        self.output.fill_(77)
        self.input.copy_(self._values(self.rank, self.input.numel()))

    def wrong(self) -> int:
        expected = self._expected()
        if expected is None:
            return 0
        if self.op_name == "avg":
            return int((~torch.isclose(self.output.double(), expected, rtol=0.02, atol=0.02)).sum())
        return int((self.output.double() != expected).sum())

    def _values(self, rank: int, count: int, first: int = 0) -> torch.Tensor:
        elements = torch.arange(first, first + count)
        if self.op_name == "prod":
            return torch.where((elements + rank) % self.size == 0, 2, 1)
        return (elements * 7 + rank * 3) % 13

    def _reduced(self, first: int = 0) -> torch.Tensor:
        parts = [self._values(rank, self.count, first) for rank in range(self.size)]
        if self.op_name in INTEGER_OPS:
            result = parts[0]
            for part in parts[1:]:
                result = INTEGER_OPS[self.op_name](result, part)
            return result.double()
        stacked = torch.stack(parts).double()
        reduced = {
            "sum": stacked.sum(0),
            "prod": stacked.prod(0),
            "min": stacked.amin(0),
            "max": stacked.amax(0),
            "avg": stacked.mean(0),
        }
        return reduced[self.op_name]

    def _expected(self) -> torch.Tensor | None:
        count, mine = self.count, self.rank * self.count
        if self.kind == "all_reduce" or (self.kind == "reduce" and self.rank == self.root):
            return self._reduced()
        if self.kind == "reduce_scatter":
            return self._reduced(mine)
        if self.kind == "broadcast":
            return self._values(self.root, count).double()
        if self.kind == "scatter":
            return self._values(self.root, count, mine).double()
        if self.kind == "all_gather" or (self.kind == "gather" and self.rank == self.root):
            return torch.cat([self._values(rank, count) for rank in range(self.size)]).double()
        if self.kind == "all_to_all":
            return torch.cat([self._values(rank, count, mine) for rank in range(self.size)]).double()
        if self.kind == "send_recv":
            return self._values((self.rank - 1) % self.size, count).double()
        return None


def prepare(call: Call) -> Run:
    """One call of torch.distributed, start to end. all_reduce, broadcast and reduce work in place only there: out of
    place, the copy belongs to the call."""
    source, target, op = call.input, call.output, OPS[call.op_name]

    def copied(run: Run, needed: bool = True) -> Run:
        if call.in_place or not needed:
            return run
        return lambda: (target.copy_(source), run())

    parts_in = list(source.chunk(call.size)) if source.numel() == call.size * call.count else []
    parts_out = list(target.chunk(call.size)) if target.numel() == call.size * call.count else []
    at_root = call.rank == call.root
    runs: dict[str, Run] = {
        "all_reduce": copied(lambda: dist.all_reduce(target, op)),
        "broadcast": copied(lambda: dist.broadcast(target, call.root), at_root),
        "reduce": copied(lambda: dist.reduce(target, call.root, op)),
        "all_gather": lambda: dist.all_gather_into_tensor(target, source),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(target, source, op),
        "all_to_all": lambda: dist.all_to_all_single(target, source),
        "gather": lambda: dist.gather(source, parts_out if at_root else None, call.root),
        "scatter": lambda: dist.scatter(target, parts_in if at_root else None, call.root),
        "send_recv": lambda: _send_recv(call),
        "barrier": dist.barrier,
    }
    return runs[call.kind]


def _send_recv(call: Call) -> None:
    received = dist.irecv(call.output, (call.rank - 1) % call.size)
    dist.send(call.input, (call.rank + 1) % call.size)
    if received is not None:
        received.wait()


def measure(values: dict[str, str], rank: int, size: int) -> dict[str, Any]:
    call = Call(values, rank, size)
    run = prepare(call)
    call.fill()
    try:
        for _ in range(int(values["warmups"])):
            run()
    except (RuntimeError, ValueError, NotImplementedError) as error:
        if any(
            word in str(error).lower() for word in ("not support", "unsupported", "cannot use", "unhandled")
        ):
            raise UnsupportedError(str(error)) from error
        raise
    iterations = int(values["iterations"])
    dist.barrier()
    start = time.perf_counter()
    for _ in range(iterations):
        run()
    reply: dict[str, Any] = {"seconds": (time.perf_counter() - start) / iterations}
    if values["check"] != "0" and call.kind != "barrier":
        dist.barrier()
        call.fill()
        dist.barrier()
        run()
        reply["wrong"] = call.wrong()
    dist.barrier()
    return reply


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pipes", type=Path, required=True)
    parser.add_argument("--backend", required=True)
    arguments = parser.parse_args()
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    with (
        (arguments.pipes / f"commands.{rank}").open() as commands,
        (arguments.pipes / "replies").open("w") as replies,
    ):

        def reply(fields: dict[str, Any]) -> None:
            replies.write(json.dumps({"rank": rank, **fields}) + "\n")
            replies.flush()

        try:
            if arguments.backend == "starling":
                import starling.torch  # noqa: F401 - registers the backend
            dist.init_process_group(arguments.backend)
            reply({"ready": True})
            for line in commands:
                verb, *words = line.split()
                if verb == "quit":
                    break
                try:
                    reply(measure(dict(word.split("=", 1) for word in words), rank, size))
                except UnsupportedError as reason:
                    reply({"unsupported": str(reason)[:1000]})
        except Exception as error:
            reply({"error": f"{type(error).__name__}: {error}"[:3000]})
            raise
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
