"""Starts ranks on hosts and brings back what became of them.

Each host is one process (``python ranks.py``) that makes its own /dev/shm where the host is a namespace, and forks the
host's ranks. Ranks meet in a folder, and leave their results there.
"""

import inspect
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hosts.network import Network

if TYPE_CHECKING:  # ranks are forked before it is loaded
    from starling.monitor.views import Rank, Watcher

TESTS = Path(__file__).resolve().parent.parent
MOUNTED = 'mount -t tmpfs tmpfs /dev/shm && exec "$@"'


class Job:
    """A function of a module on every rank: ``function(communicator, **arguments)``; picklable results.

    One that has an argument ``folder`` is given the job's. communicator=False: ``function(rank, size, folder, ...)``.
    hosts: the ranks of each host; of_hosts: settings of each. python: whose installation runs. network: None: hosts
    share this machine's loopback, and are told apart by setting. gpus: 0: contexts on the CPU; else ranks take turns at
    so many GPUs. stderr: a file that gets what all ranks write there.
    """

    def __init__(
        self,
        network: Network | None,
        hosts: Sequence[Sequence[int]],
        function: Callable[..., Any],
        arguments: Mapping[str, Any] | None = None,
        *,
        blocks: int = 1,
        settings: Mapping[str, str] | None = None,
        of_hosts: Sequence[Mapping[str, str]] | None = None,
        communicator: bool = True,
        gpus: int = 0,
        python: str = sys.executable,
        communicator_options: Mapping[str, Any] | None = None,
        stderr: Path | None = None,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="starling-hosts-"))
        log = stderr.open("ab") if stderr is not None else None
        self._ranks = [rank for ranks in hosts for rank in ranks]
        self._hosts = []
        (self.folder / "store").mkdir()
        (self.folder / "arguments").write_bytes(pickle.dumps((function, dict(arguments or {}))))
        for host, ranks in enumerate(hosts):
            what = {
                "ranks": list(ranks),
                "size": len(self._ranks),
                "folder": str(self.folder),
                "blocks": blocks,
                "communicator": communicator,
                "communicator_options": dict(communicator_options or {}),
                "gpus": gpus,
            }
            command = [python, str(Path(__file__).resolve()), json.dumps(what)]
            path = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
            environment = dict(os.environ, PYTHONPATH=path, **(settings or {}))
            if network is None:
                environment |= {"STARLING_HOST_ID": str(host), "STARLING_TCP_INTERFACES": "lo,lo"}
            else:
                command = ["ip", "netns", "exec", network.names[host], "sh", "-c", MOUNTED, "host", *command]
            if of_hosts is not None:
                environment |= of_hosts[host]
            self._hosts.append(subprocess.Popen(command, env=environment, stderr=log, start_new_session=True))
        if log is not None:
            log.close()

    def kill_host(self, host: int) -> None:
        """All of its processes at once, as when it loses power; its ports live on."""
        os.killpg(self._hosts[host].pid, signal.SIGKILL)

    def wait_for(self, name: str, timeout_s: float = 200.0) -> float:
        """Until a rank has made the file ``name`` in the folder. Returns what it wrote."""
        deadline = time.monotonic() + timeout_s
        while not (self.folder / name).exists():
            assert time.monotonic() < deadline, f"no {name} within {timeout_s} s"
            self.check_on(name)
            time.sleep(0.002)
        return float((self.folder / name).read_text() or 0)

    def check_on(self, awaited: str = "the end") -> None:
        """Raises if a rank has failed, or all hosts have ended."""
        assert any(host.poll() is None for host in self._hosts), f"all hosts ended without {awaited}"
        for rank in self._ranks:
            if (self.folder / f"result.{rank}").exists():
                _, error = pickle.loads((self.folder / f"result.{rank}").read_bytes())
                assert not error, f"rank {rank} ended before {awaited}: {error}"

    def say(self, name: str) -> None:
        (self.folder / name).touch()

    def results(self, timeout_s: float = 200.0, ranks: Sequence[int] | None = None) -> list[Any]:
        """By rank, of all or of some. Raises what a rank raised."""
        try:
            deadline = time.monotonic() + timeout_s
            for host in self._hosts:
                host.wait(max(deadline - time.monotonic(), 0.1))
            values = []
            for rank in ranks if ranks is not None else sorted(self._ranks):
                value, error = pickle.loads((self.folder / f"result.{rank}").read_bytes())
                assert not error, f"rank {rank}: {error}"
                values.append(value)
            return values
        finally:
            self.end()

    def end(self) -> None:
        for host in self._hosts:
            if host.poll() is None:
                os.killpg(host.pid, signal.SIGKILL)
            host.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def touch(folder: str, name: str, text: str = "") -> None:
    """For ranks: makes the file, whole at once."""
    draft = Path(folder) / f"{name}.draft.{os.getpid()}"
    draft.write_text(text)
    draft.rename(Path(folder) / name)


def watched(watcher: "Watcher", rank: int) -> "Rank":
    """This process's own rank, as the watcher sees it: other jobs of this name may run beside this one."""
    (mine,) = [seen for seen in watcher.look() if seen.pid == os.getpid() and seen.rank == rank]
    return mine


def run_rank(rank: int, what: dict[str, Any]) -> None:
    folder = Path(what["folder"])
    value, error = None, ""
    try:
        function, arguments = pickle.loads((folder / "arguments").read_bytes())
        if "folder" in inspect.signature(function).parameters:
            arguments["folder"] = str(folder)
        if what["communicator"]:
            from starling import Communicator, Context
            from starling.stores import FileStore

            store = FileStore(str(folder / "store"))
            device = f"cuda:{rank % what['gpus']}" if what["gpus"] else "cpu"
            with (
                Context(blocks=what["blocks"], device=device) as context,
                Communicator(
                    context,
                    rank=rank,
                    size=what["size"],
                    name="hosts",
                    store=store,
                    timeout=200,
                    **what["communicator_options"],
                ) as comm,
            ):
                value = function(comm, **arguments)
        else:
            value = function(rank, what["size"], **arguments)
    except BaseException:
        error = traceback.format_exc()
    draft = folder / f"result.{rank}.draft"
    draft.write_bytes(pickle.dumps((value, error)))
    draft.rename(folder / f"result.{rank}")


def main() -> None:
    what = json.loads(sys.argv[1])
    children = []
    for rank in what["ranks"]:
        child = os.fork()
        if child == 0:
            run_rank(rank, what)
            sys.stdout.flush()
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
