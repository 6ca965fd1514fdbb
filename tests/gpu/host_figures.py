"""Measures links between GPUs of two hosts beside NCCL's sockets: ``python tests/gpu/host_figures.py --json FILE``.

Two processes with a GPU each take themselves for hosts; both libraries go over loopback, NCCL with its own ways between
GPUs of one machine switched off. PyTorch's all_reduce, and send and recv there and back, in turns in one run: one at a
time, each waited for, and in a row. ``--table FILE`` prints what such a file says as Markdown.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SIZES = (*(8 * 8**k for k in range(8)), 64 << 20)  # 8 B to 16 MB, and 64 MB
LEFT_TO_NCCL = {
    "NCCL_NET": "Socket",
    "NCCL_IB_DISABLE": "1",
    "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_SOCKET_IFNAME": "lo",
}
ROUNDS = 5
Times = dict[str, dict[str, dict[str, dict[Any, list[float]]]]]  # call, how, library, bytes (text in a file)


def calls_of(bytes_: int, most: int) -> int:
    return max(3, min(most, (64 << 20) // bytes_))


def measure(rank: int, size: int, folder: str, out: str, names: list[str]) -> None:
    os.environ |= {"STARLING_HOST_ID": f"host {rank}", "NCCL_HOSTID": f"host {rank}", **LEFT_TO_NCCL}
    os.environ.setdefault("STARLING_TCP_INTERFACES", "lo")
    import starling.torch  # noqa: F401

    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl",
        store=dist.FileStore(f"{folder}/store", size),
        rank=rank,
        world_size=size,
        device_id=device,
        timeout=datetime.timedelta(seconds=60),
    )
    groups = {"nccl": dist.new_group(backend="nccl"), "starling": dist.new_group(backend="starling")}

    def all_reduce(values: torch.Tensor, group: dist.ProcessGroup) -> None:
        dist.all_reduce(values, group=group)

    def there_and_back(values: torch.Tensor, group: dist.ProcessGroup) -> None:
        for sender in (0, 1):
            if rank == sender:
                dist.send(values, 1 - rank, group=group)
            else:
                dist.recv(values, 1 - rank, group=group)

    def timed(call: Callable[..., None], values: torch.Tensor, group: Any, calls: int, wait: bool) -> float:
        torch.cuda.synchronize()
        begin = time.monotonic()
        for _ in range(calls):
            call(values, group)
            if wait:
                torch.cuda.synchronize()
        torch.cuda.synchronize()
        return 1e6 * (time.monotonic() - begin) / calls

    found: Times = {}
    deadline = time.monotonic() + float(os.environ.get("LIMIT_S", "100"))
    for bytes_ in SIZES:
        for call in (all_reduce, there_and_back):
            if call.__name__ not in names:
                continue
            values = torch.full((bytes_ // 4,), float(rank + 1), device=device)
            for group in groups.values():
                values.fill_(rank + 1)
                call(values, group)
                wanted = 3.0 if call is all_reduce else 1.0
                if not bool((values == wanted).all()):
                    raise AssertionError(f"{call.__name__} of {bytes_} bytes is wrong")
                values.zero_()
            for how, wait in (("one at a time", True), ("in a row", False)):
                for _ in range(ROUNDS):  # in turns: what else the machine does meets both
                    for name, group in groups.items():
                        timed(call, values, group, 2, wait)
                        took = timed(call, values, group, calls_of(bytes_, 100), wait)
                        of_call = found.setdefault(call.__name__, {}).setdefault(how, {})
                        of_call.setdefault(name, {}).setdefault(bytes_, []).append(took)
                if rank == 0:
                    ours, theirs = (statistics.median(of_call[name][bytes_]) for name in ("starling", "nccl"))
                    print(
                        f"{call.__name__:15} {bytes_:9} B {how:13}: NCCL {theirs:10.1f} us, Starling {ours:10.1f} us, "
                        f"ratio {ours / theirs:.2f}",
                        flush=True,
                    )
        late = torch.tensor([float(time.monotonic() > deadline)], device=device)
        dist.all_reduce(late, group=groups["nccl"])
        if float(late):
            break
    if rank == 0:
        Path(out).write_text(json.dumps(found))
    dist.destroy_process_group()


def size_text(bytes_: int) -> str:
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if bytes_ >= unit:
            return f"{bytes_ // unit} {name}"
    return f"{bytes_} B"


def print_table(found: Times) -> None:
    """Starling's time over NCCL's, medians of the rounds; in parentheses Starling's, us."""
    rows = [(call, how, libraries) for call, of_call in found.items() for how, libraries in of_call.items()]
    sizes = list(rows[0][2]["nccl"])
    print("| |", " | ".join(size_text(int(size)) for size in sizes), "|")
    print("| --- |", " | ".join("---:" for _ in sizes), "|")
    for call, how, libraries in rows:
        ours = [statistics.median(libraries["starling"][size]) for size in sizes]
        theirs = [statistics.median(libraries["nccl"][size]) for size in sizes]
        cells = [f"{a / b:.2f} ({a:.0f})" for a, b in zip(ours, theirs, strict=True)]
        print(f"| {call.replace('_', ' ')}, {how} |", " | ".join(cells), "|")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--json", type=Path)
    chosen.add_argument("--table", type=Path)
    parser.add_argument("--calls", default="all_reduce,there_and_back")
    arguments = parser.parse_args()
    if arguments.table is not None:
        print_table(json.loads(arguments.table.read_text())["us a call, all rounds"])
        return 0
    target = arguments.json
    os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False
    )
    with tempfile.TemporaryDirectory() as folder:
        context = mp.get_context("spawn")
        out = f"{folder}/found"
        ranks = [
            context.Process(target=measure, args=(rank, 2, folder, out, arguments.calls.split(",")))
            for rank in range(2)
        ]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
        if not Path(out).exists():
            return 1
        found = json.loads(Path(out).read_text())
    report = {
        "command": "python tests/gpu/host_figures.py --json " + str(target),
        "commit": commit.stdout.strip(),
        "date": datetime.date.today().isoformat(),
        "machine": f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}, {os.cpu_count()} cores",
        "nccl": ".".join(str(part) for part in torch.cuda.nccl.version()),
        "settings of NCCL": LEFT_TO_NCCL,
        "STARLING_SM_FREE": os.environ.get("STARLING_SM_FREE", "0"),
        "us a call, all rounds": found,
    }
    target.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
