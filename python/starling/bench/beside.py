"""What runs on a GPU beside collectives: ``bench/gpu/beside.cu``, for Python."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .programs import find_program

LIBRARY = "gpu.beside.so"


class Beside:
    """Of one GPU. Calls return when the runtime does; they raise RuntimeError with the runtime's error."""

    def __init__(self, device: int, programs: Path | None = None) -> None:
        self.device = device
        self._library = ctypes.CDLL(str(find_program(LIBRARY, programs)))

    def multiprocessors(self) -> int:
        count = ctypes.c_int()
        self._call("multiprocessors", ctypes.byref(count))
        return count.value

    @contextmanager
    def occupied(self, free: int, limit_s: float) -> Iterator[None]:
        """All multiprocessors but ``free`` are taken, for ``limit_s`` at most."""
        occupation = ctypes.c_void_p()
        try:
            self._call("occupy", free, ctypes.c_double(limit_s), ctypes.byref(occupation))
            yield
        finally:
            self._call("release", occupation)

    def l2(self, stream: int, data: int, size: int, passes: int, sink: int) -> None:
        """Reads ``size`` bytes at ``data`` so often; ``sink``: 4 bytes of the GPU."""
        self._call(
            "l2",
            *map(ctypes.c_void_p, (stream, data)),
            ctypes.c_size_t(size),
            passes,
            ctypes.c_void_p(sink),
        )

    def issue(self, stream: int, rounds: int, sink: int) -> None:
        """64 multiply-adds a thread and round."""
        self._call("issue", ctypes.c_void_p(stream), ctypes.c_long(rounds), ctypes.c_void_p(sink))

    def steps(self, stream: int, count: int, data: int, size: int) -> None:
        """So many small kernels one behind the other, each of which reads and writes ``size`` bytes at ``data``."""
        self._call("steps", ctypes.c_void_p(stream), count, ctypes.c_void_p(data), ctypes.c_size_t(size))

    def free(self, size: int, *, host: bool) -> None:
        """cudaMalloc and cudaFree, or of pinned memory."""
        self._call("free", int(host), ctypes.c_size_t(size))

    def synchronize(self) -> None:
        self._call("synchronize")

    def blocking_stream(self) -> int:
        """A cudaStream_t that is ordered with the legacy default stream."""
        stream = ctypes.c_void_p()
        self._call("blocking_stream", ctypes.byref(stream))
        return stream.value or 0

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, f"beside_{name}")(self.device, *arguments)
        if status != 0:
            raise RuntimeError(f"{LIBRARY}, {name} on cuda:{self.device}: CUDA error {status}")
