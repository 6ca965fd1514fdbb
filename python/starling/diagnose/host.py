"""Whether the host starves a rank: CPU quota and throttling of its control group, its cores, its process's state.

Files are read below a root that can be replaced, so that a test, or another host's copy, can stand in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from starling.diagnose.record import Record

THROTTLED_SHARE = 0.1  # of the periods in which the group ran
_STOPPED = {"T": "stopped (SIGSTOP, or Ctrl-Z)", "t": "stopped by a debugger", "D": "blocked in the kernel"}


@dataclass(frozen=True)
class CpuLimit:
    """The tightest limit of a control group and those above it."""

    group: str
    cores: float
    periods: int
    throttled: int

    @property
    def throttled_share(self) -> float:
        return self.throttled / self.periods if self.periods else 0.0


class Hosts:
    """What this host says of processes; of other hosts' it knows nothing."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    def state(self, record: Record) -> str:
        """One letter, as in /proc; "" where the process is not here."""
        if record.state != "live":
            return ""
        text = self._read(f"proc/{record.pid}/stat")
        return text.rpartition(")")[2].split()[0] if ")" in text else ""

    def stopped(self, record: Record) -> str:
        """Why the process does not run; "" if it does."""
        state = self.state(record)
        return _STOPPED.get(state, "") if state != "D" else ""

    def cores(self, record: Record) -> int:
        """That the process may run on; 0: not known."""
        if record.state != "live":
            return 0
        for line in self._read(f"proc/{record.pid}/status").splitlines():
            name, _, value = line.partition(":")
            if name == "Cpus_allowed_list":
                return _count(value.strip())
        return 0

    def load(self) -> float:
        words = self._read("proc/loadavg").split()
        return float(words[0]) if words else 0.0

    def setting(self, record: Record, name: str) -> str | None:
        """Of the environment that the process was started with; "" if that had none. None: not known."""
        environment = self._read(f"proc/{record.pid}/environ") if record.state == "live" else ""
        if not environment:
            return None
        for line in environment.split("\0"):
            key, _, value = line.partition("=")
            if key == name:
                return value
        return ""

    def limit(self, record: Record) -> CpuLimit | None:
        """None: the process has no CPU quota, or is not here."""
        if record.state != "live":
            return None
        limits = [limit for folder in self._groups(record.pid) if (limit := self._limit_of(folder))]
        return min(limits, key=lambda limit: limit.cores, default=None)

    def _groups(self, pid: int) -> Iterator[Path]:
        """Folders of the group and those above it, in both versions of control groups."""
        mounts = [line.split() for line in self._read("proc/mounts").splitlines()]
        for line in self._read(f"proc/{pid}/cgroup").splitlines():
            _, controllers, path = line.split(":", 2)
            for words in mounts:
                if len(words) < 4:
                    continue
                new = words[2] == "cgroup2" and controllers == ""
                old = (
                    words[2] == "cgroup" and "cpu" in words[3].split(",") and "cpu" in controllers.split(",")
                )
                if not (new or old):
                    continue
                top = self._root / words[1].lstrip("/")
                # A path as another container sees it is not there; those above it may be.
                folder = top / path.lstrip("/")
                yield folder
                while folder != top:
                    folder = folder.parent
                    yield folder

    def _limit_of(self, folder: Path) -> CpuLimit | None:
        try:
            if (folder / "cpu.max").is_file():
                quota, period = (folder / "cpu.max").read_text().split()
            else:
                quota = (folder / "cpu.cfs_quota_us").read_text().strip()
                period = (folder / "cpu.cfs_period_us").read_text().strip()
            if quota in ("max", "-1"):
                return None
            stat = dict(line.split() for line in (folder / "cpu.stat").read_text().splitlines())
        except (OSError, ValueError):
            return None
        name = "/" + str(folder.relative_to(self._root))
        return CpuLimit(
            name, int(quota) / int(period), int(stat.get("nr_periods", 0)), int(stat.get("nr_throttled", 0))
        )

    def words_for(self, record: Record) -> list[str]:
        """What may slow the rank's process down."""
        told = []
        limit = self.limit(record)
        if limit is not None and limit.throttled:
            told.append(
                f"its control group {limit.group} gets {limit.cores:.3g} cores and was throttled in "
                f"{limit.throttled_share:.0%} of its periods"
            )
        if self.state(record) == "D":
            told.append("its process is blocked in the kernel (a disk, or a driver)")
        return told

    def _read(self, name: str) -> str:
        try:
            return (self._root / name).read_text()
        except OSError:
            return ""


def _count(cores: str) -> int:
    """Of a list such as 0-3,8."""
    total = 0
    for part in cores.split(","):
        first, _, last = part.partition("-")
        total += int(last or first) - int(first) + 1
    return total
