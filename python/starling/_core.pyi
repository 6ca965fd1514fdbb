# Types of the compiled module. The package documents what they mean.
from collections.abc import Callable, Sequence
from typing import Any

monitor: Any
plan: Any
study: Any
sim: Any

def version() -> str: ...
def status_name(status: int) -> str: ...
def end_callbacks() -> None: ...
def time_calls(warmups: int, calls: int, steps: Sequence[Step]) -> float: ...

class Request:
    def wait(self, timeout_ns: int) -> bool: ...
    def status(self) -> int: ...
    def check(self) -> None: ...
    def source(self) -> int: ...
    def wait_on_stream(self, stream: int) -> None: ...

class Context:
    def __init__(
        self,
        blocks: int,
        arena_bytes: int,
        pool_bytes: int,
        scheduling: dict[str, Any],
        completion_queue: str | None,
        device: str = "cpu",
    ) -> None: ...
    @property
    def handle(self) -> int: ...
    @property
    def blocks(self) -> int: ...
    def destroy(self) -> None: ...
    def synchronize(self) -> None: ...
    def profile(self) -> dict[str, Any]: ...
    def statistics(self) -> dict[str, int]: ...
    def trace(self, most: int) -> list[tuple[int, int, int, int, int, int]]: ...
    def lane_name(self, lane: int) -> str: ...

def decline(rank: int, size: int, name: str, store: Any, reason: str) -> None: ...

class Communicator:
    def __init__(
        self, context: Context, rank: int, size: int, name: str, store: Any, timeout_ns: int, sm_free: int
    ) -> None: ...
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def split(self, color: int, key: int) -> Communicator | None: ...
    def subgroup(self, ranks: Sequence[int], name: str) -> Communicator | None: ...
    def abort(self, reason: str) -> None: ...
    def error(self) -> tuple[int, str]: ...
    def set_timeout(self, timeout_ns: int) -> None: ...
    def destroy(self) -> None: ...
    def submit(
        self,
        kind: int,
        input: Any,
        output: Any,
        data_type: str | None,
        reduce_op: int = 0,
        scalar: float = 1.0,
        root: int = 0,
        lane: str | None = None,
        priority: int = 0,
        timeout_ns: int = 0,
        algorithm: str | None = None,
        callback: Callable[[int, str], None] | None = None,
        input_counts: Sequence[int] | None = None,
        input_offsets: Sequence[int] | None = None,
        output_counts: Sequence[int] | None = None,
        output_offsets: Sequence[int] | None = None,
        start: int = 0,
        stream: int = 0,
    ) -> Request: ...
    def submit_custom(
        self,
        plan: str,
        input_groups: int,
        output_groups: int,
        input: Any,
        output: Any,
        data_type: str | None = None,
        reduce_op: int = 0,
        scalar: float = 1.0,
        lane: str | None = None,
        priority: int = 0,
        timeout_ns: int = 0,
        callback: Callable[[int, str], None] | None = None,
        start: int = 0,
        stream: int = 0,
    ) -> Request: ...
    def add_plan(self, text: str, smallest_bytes: int, largest_bytes: int) -> None: ...
    @property
    def topology(self) -> str: ...
    @property
    def sm_free(self) -> int: ...
    @property
    def large_messages(self) -> tuple[bool, int, int]: ...
    def use_table(self, path: str) -> int: ...
    def submit_messages(
        self, messages: list[tuple[int, Any, int, int]], timeout_ns: int, start: int, stream: int
    ) -> tuple[list[Request | None], int, str]: ...
    def submit_message(
        self,
        kind: int,
        buffer: Any,
        peer: int,
        tag: int,
        data_type: str | None = None,
        priority: int = 0,
        timeout_ns: int = 0,
        callback: Callable[[int, str], None] | None = None,
        start: int = 0,
        stream: int = 0,
    ) -> Request: ...
    def register(
        self,
        id: int,
        devices: Sequence[int],
        kind: int,
        count: int,
        data_type: str,
        reduce_op: int,
        scalar: float,
        root: int,
        priority: int,
        timeout_ns: int,
    ) -> None: ...
    def run(
        self,
        id: int,
        kind: int,
        input: Any,
        output: Any,
        data_type: str,
        root: int,
        rank: int,
        size: int,
        count: int,
        callback: Callable[[int, str], None],
    ) -> None: ...

def settings_table() -> list[dict[str, str]]: ...

class Step:
    def __init__(
        self,
        comm: Communicator,
        kind: int,
        input: Any,
        output: Any,
        reduce_op: int = 0,
        algorithm: str = "",
        start: int = 0,
        stream: int = 0,
        groups: tuple[int, int] | None = None,
    ) -> None: ...
