"""Runs checks of a module (``CHECKS``, by name) on a group of processes, one a GPU.

Each check has a time limit; after one that failed or hung the others run in processes of their own, so that one run
tells of all. A hang prints where every thread of every rank stood. With HOSTS=n the ranks take themselves for those of
n hosts.
"""

from __future__ import annotations

import datetime
import faulthandler
import importlib
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch_checks import Place

LIMIT_S = 25.0
OPERATION_TIMEOUT = datetime.timedelta(seconds=12)


def _run(rank: int, size: int, folder: str, module: str, names: list[str]) -> None:
    log = open(f"{folder}/log.{rank}", "ab", buffering=0)  # noqa: SIM115  open as long as the process
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    if hosts := int(os.environ.get("HOSTS", "0")):
        os.environ["STARLING_HOST_ID"] = f"host {rank * hosts // size}"
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    import starling.torch

    checks = importlib.import_module(module).CHECKS
    dist.init_process_group(
        "starling",
        store=dist.FileStore(f"{folder}/store", size),
        rank=rank,
        world_size=size,
        timeout=OPERATION_TIMEOUT,
        device_id=device,
    )
    place = Place(rank, size, device)
    with open(f"{folder}/progress.{rank}", "a", buffering=1) as progress:

        def tell(**what: object) -> None:
            progress.write(json.dumps({**what, "at": time.monotonic()}) + "\n")

        for name in names:
            tell(name=name, state="begun")
            try:
                checks[name](place)
                torch.cuda.synchronize()
            except BaseException:
                tell(name=name, state="failed", why=traceback.format_exc())
                print({k: v for k, v in starling.torch.statistics().items() if v}, flush=True)
                time.sleep(1)
                os._exit(1)
            tell(name=name, state="ok")
    os._exit(0)


def _read(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def _batch(size: int, module: str, names: list[str]) -> tuple[dict[str, str], str]:
    """What became of the checks until one was wrong, by name: "ok" or why not; and what all ranks printed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        context = mp.get_context("fork")  # with PyTorch imported; no CUDA call was made yet
        ranks = [context.Process(target=_run, args=(rank, size, name, module, names)) for rank in range(size)]
        for process in ranks:
            process.start()
        last = time.monotonic() + 60  # until the first begins
        wrong = ""
        while not wrong and any(process.is_alive() for process in ranks):
            time.sleep(0.05)
            told = [line for rank in range(size) for line in _read(folder / f"progress.{rank}")]
            begun = [line["at"] for line in told if line["state"] == "begun"]
            if any(line["state"] == "failed" for line in told):
                wrong = "failed"
                time.sleep(1.5)
            elif time.monotonic() > (max(begun) + LIMIT_S if begun else last):
                wrong = f"hung: more than {LIMIT_S:.0f} s"
        for process in ranks:
            if process.is_alive() and wrong and process.pid is not None:
                os.kill(process.pid, signal.SIGUSR1)
        time.sleep(0.5 if wrong else 0)
        for process in ranks:
            if process.is_alive():
                process.kill()
            process.join()
        return _verdicts(folder, size, names, wrong)


def _verdicts(folder: Path, size: int, names: list[str], wrong: str) -> tuple[dict[str, str], str]:
    told = [_read(folder / f"progress.{rank}") for rank in range(size)]
    verdicts: dict[str, str] = {}
    for name in names:
        of_name = [[line for line in lines if line["name"] == name] for lines in told]
        ended = [[line for line in lines if line["state"] != "begun"] for lines in of_name]
        failed = [
            f"rank {r}: {line['why']}" for r in range(size) for line in ended[r] if line["state"] == "failed"
        ]
        who = [r for r in range(size) if ended[r]]
        if failed:
            verdicts[name] = "\n".join(failed)
        elif len(who) == size or (name == "killed" and len(who) == size - 1):
            verdicts[name] = "ok"
        elif any(of_name) or name == names[0]:
            verdicts[name] = f"{wrong or 'a rank ended'}; ended on ranks {who}"
        if verdicts.get(name) != "ok":
            break
    logs = [(folder / f"log.{rank}").read_text(errors="replace") for rank in range(size)]
    return verdicts, "\n".join(
        f"--- rank {rank} ---\n{text[-6000:]}" for rank, text in enumerate(logs) if text
    )


def main(module: str, names: list[str]) -> int:
    """``SCRIPT RANKS [name ...]``: all of ``names``, or those of the command line."""
    size = int(sys.argv[1])
    left = sys.argv[2:] or names
    os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")
    wrong = []
    while left:
        begin = time.monotonic()
        verdicts, logs = _batch(size, module, left)
        for name, verdict in verdicts.items():
            print(f"{name}: {verdict}", flush=True)
            left.remove(name)
            if verdict != "ok":
                wrong.append(name)
        print(f"({time.monotonic() - begin:.1f} s)\n{logs}" if wrong else "", flush=True)
    print(f"wrong: {', '.join(wrong) or 'none'}")
    return 1 if wrong else 0
