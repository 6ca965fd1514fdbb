"""The machines that the suite runs on: how ranks start there. A new machine is a new row."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starling.launch import run_processes, run_threads


@dataclass(frozen=True)
class Machine:
    """``run(size, function, timeout=, check=, context=, operation_timeout=)`` as in ``starling.launch``."""

    name: str
    run: Callable[..., Any]


MACHINES = {
    machine.name: machine
    for machine in (Machine("threads", run_threads), Machine("processes", run_processes))
}
