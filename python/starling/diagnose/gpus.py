"""GPUs of this host, as nvidia-smi tells of them: which slow down, and which rank's they are."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from starling.diagnose import words
from starling.diagnose.finding import Finding
from starling.diagnose.host import Hosts
from starling.diagnose.job import Job
from starling.diagnose.record import Record

# Of NVML's clocks_throttle_reasons those that are no choice of the user's, nor for want of work.
_REASONS = {
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}


@dataclass(frozen=True)
class Gpu:
    index: int
    uuid: str
    reasons: tuple[str, ...]  # why it slows down; empty: it does not
    degrees: str
    pids: frozenset[int] = frozenset()  # of processes that use it, where nvidia-smi may see them

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.degrees} degrees, {', '.join(self.reasons)})"


def of_this_host() -> list[Gpu]:
    """Empty without nvidia-smi."""
    users: dict[str, set[int]] = {}
    for fields in _ask("--query-compute-apps=gpu_uuid,pid", 2):
        if fields[1].isdigit():
            users.setdefault(fields[0], set()).add(int(fields[1]))
    found = []
    for index, uuid, bits, degrees in _ask(
        "--query-gpu=index,uuid,clocks_throttle_reasons.active,temperature.gpu", 4
    ):
        try:
            active, number = int(bits, 16), int(index)
        except ValueError:
            continue
        reasons = tuple(name for bit, name in _REASONS.items() if active & bit)
        found.append(Gpu(number, uuid, reasons, degrees, frozenset(users.get(uuid, ()))))
    return found


def _ask(query: str, columns: int) -> list[list[str]]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    try:
        answer = subprocess.run(
            [tool, query, "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    rows = [[field.strip() for field in line.split(",")] for line in answer.stdout.splitlines()]
    return [row for row in rows if len(row) == columns]


def gpu_of(record: Record, job: Job, gpus: Sequence[Gpu], hosts: Hosts) -> Gpu | None:
    """The one that nvidia-smi sees the rank's process on; else, as in a container, the one that its device's number
    stands for in CUDA_VISIBLE_DEVICES. None: not known."""
    kind, _, number = record.device.partition(":")
    if record.state != "live" or kind != "cuda" or not number.isdigit():
        return None
    used = [gpu for gpu in gpus if record.pid in gpu.pids]
    if len(used) == 1:
        return used[0]
    visible = _visible(record, gpus, hosts)
    if int(number) >= len(visible):
        return None
    if len(visible) > 1 and any(
        other.device == record.device and _visible(other, gpus, hosts) == visible
        for other in job.records
        if other is not record and other.state == "live" and other.host == record.host
    ):
        return None  # ranks may have set the variable themselves since they began, each to a GPU of its own
    name = visible[int(number)]
    return next((gpu for gpu in gpus if name == str(gpu.index) or gpu.uuid.startswith(name)), None)


def _visible(record: Record, gpus: Sequence[Gpu], hosts: Hosts) -> list[str]:
    """Numbers or uuids of the GPUs that the process began with. Empty: not known."""
    setting = hosts.setting(record, "CUDA_VISIBLE_DEVICES")
    if setting is None:
        return []
    named = [name.strip() for name in setting.split(",") if name.strip()]
    return named or [str(gpu.index) for gpu in sorted(gpus, key=lambda gpu: gpu.index)]


def throttled(job: Job, gpus: Sequence[Gpu], hosts: Hosts) -> Finding | None:
    """Ranks whose GPUs slow down."""
    found = [
        (rank, gpu)
        for rank in job.ranks.values()
        if rank.record is not None
        and (gpu := gpu_of(rank.record, job, gpus, hosts)) is not None
        and gpu.reasons
    ]
    if not found:
        return None
    rank, gpu = found[0]
    what = f"the GPU of {words.who(rank)} slows down: {gpu}"
    if len(found) > 1:
        what += (
            "; so "
            + ("does that of " if len(found) == 2 else "do those of ")
            + words.ranks(other.number for other, _ in found[1:])
        )
    return Finding(
        "throttled",
        what,
        "see its cooling and power (nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER); the other ranks wait for it",
        tuple(other.number for other, _ in found),
        details=tuple(f"rank {other.number}: {its}" for other, its in found[1:]),
    )


def untied(job: Job, gpus: Sequence[Gpu], hosts: Hosts) -> list[str]:
    """A line for each GPU that slows down and is no rank's, as far as is known."""
    tied = {gpu.index for record in job.records if (gpu := gpu_of(record, job, gpus, hosts)) is not None}
    return [f"{gpu} slows down" for gpu in gpus if gpu.reasons and gpu.index not in tied]
