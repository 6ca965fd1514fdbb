"""Where a case's buffers lie while the library has them: in CPU memory, or on the rank's GPU beside a CPU copy."""

from typing import Any

import numpy.typing as npt

Array = npt.NDArray


class HostMemory:
    """The numpy arrays themselves."""

    def place(self, whole: Array, view: Array) -> Any:
        """What to pass for ``view``, a part of the bytes ``whole``."""
        return view

    def fetch(self, whole: Array) -> None:
        """``whole`` as the library left it."""


class CudaMemory:
    """CUDA tensors that mirror the arrays: filled when first passed, copied back when asked."""

    def __init__(self, device: str) -> None:
        import torch

        torch.cuda.set_device(device)  # of this thread: DLPack refuses tensors of another device
        self._torch, self._device = torch, device
        self._stream = torch.cuda.Stream(
            device
        )  # not the default one: nothing here waits for the whole device
        self._mirrors: dict[int, Any] = {}

    def place(self, whole: Array, view: Array) -> Any:
        mirror = self._mirrors.get(id(whole))
        if mirror is None:
            with self._torch.cuda.stream(self._stream):
                mirror = self._torch.from_numpy(whole).to(self._device)
            self._stream.synchronize()
            self._mirrors[id(whole)] = mirror
        offset = view.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
        if view.nbytes == 0:
            offset = 0
        return mirror[offset : offset + view.nbytes].view(getattr(self._torch, str(view.dtype)))

    def fetch(self, whole: Array) -> None:
        mirror = self._mirrors.pop(id(whole), None)
        if mirror is None:
            return
        with self._torch.cuda.stream(self._stream):
            copy = mirror.cpu()
        self._stream.synchronize()
        whole[:] = copy.numpy()


def memory_of(device: str) -> HostMemory | CudaMemory:
    return HostMemory() if device == "cpu" else CudaMemory(device)
