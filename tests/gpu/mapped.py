"""Memory that a program maps piece by piece, by the driver's own calls: tensors over it; pieces that are replaced."""

from __future__ import annotations

import ctypes
from typing import Any

PINNED, DEVICE, READ_WRITE = 1, 1, 3
BY_DESCRIPTOR, NOT_AT_ALL = 1, 0


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("windows", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class _Access(ctypes.Structure):
    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


class Segment:
    """Pieces one behind the other. With ``handle_types`` NOT_AT_ALL other processes cannot map them."""

    def __init__(self, device: int, pieces: int, handle_types: int = BY_DESCRIPTOR, grains: int = 1) -> None:
        import torch

        torch.zeros(1, device=device)  # the GPU's context is the current one
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._properties = _Properties(PINNED, handle_types, _Location(DEVICE, device))
        self._access = _Access(_Location(DEVICE, device), READ_WRITE)
        grain = ctypes.c_size_t()
        self._call("cuMemGetAllocationGranularity", ctypes.byref(grain), ctypes.byref(self._properties), 0)
        self.piece_bytes = grain.value * grains
        self.bytes = pieces * self.piece_bytes
        base = ctypes.c_uint64()
        self._call(
            "cuMemAddressReserve", ctypes.byref(base), self._size(self.bytes), self._size(0), self._at(0), 0
        )
        self.base = base.value
        for piece in range(pieces):
            self._map(piece)

    @staticmethod
    def _size(value: int) -> ctypes.c_size_t:
        return ctypes.c_size_t(value)

    @staticmethod
    def _at(value: int) -> ctypes.c_uint64:
        return ctypes.c_uint64(value)

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._cuda, name)(*arguments)
        assert status == 0, f"{name}: error {status}"

    def _map(self, piece: int) -> None:
        handle = ctypes.c_uint64()
        at, size = self._at(self.base + piece * self.piece_bytes), self._size(self.piece_bytes)
        flags = ctypes.c_uint64(0)
        self._call("cuMemCreate", ctypes.byref(handle), size, ctypes.byref(self._properties), flags)
        self._call("cuMemMap", at, size, self._size(0), handle, flags)
        self._call("cuMemRelease", handle)  # the mapping holds it
        self._call("cuMemSetAccess", at, size, ctypes.byref(self._access), self._size(1))

    def replace(self, piece: int) -> None:
        """Other memory at the same addresses; nothing runs."""
        at = self._at(self.base + piece * self.piece_bytes)
        self._call("cuMemUnmap", at, self._size(self.piece_bytes))
        self._map(piece)

    def tensor(self, begin: int, count: int) -> Any:
        """Of float32; ``begin`` and ``count`` in elements."""
        import torch

        assert 4 * (begin + count) <= self.bytes

        class Array:
            """What torch takes as it is."""

        array = Array()
        array.__cuda_array_interface__ = {  # type: ignore[attr-defined]
            "shape": (count,),
            "typestr": "<f4",
            "data": (self.base + 4 * begin, False),
            "version": 3,
        }
        return torch.as_tensor(array, device=self._properties.location.id)
