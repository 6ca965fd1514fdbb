"""Memory synchronization domains of a graph's kernels, by the driver."""

from __future__ import annotations

import ctypes

import torch

KERNEL = 0  # of CUgraphNodeType
MAP, DOMAIN = 9, 10  # of CUlaunchAttributeID
VALUE_BYTES = 64  # CUlaunchAttributeValue


def map_domains(stream: torch.cuda.Stream, default: int, remote: int) -> None:
    """As a program may do that keeps its streams apart."""
    mapped = ctypes.create_string_buffer(bytes((default, remote)), VALUE_BYTES)
    _ask("cuStreamSetAttribute", ctypes.c_void_p(stream.cuda_stream), MAP, mapped)


def mapped_by(stream: torch.cuda.Stream) -> tuple[int, int]:
    mapped = ctypes.create_string_buffer(VALUE_BYTES)
    _ask("cuStreamGetAttribute", ctypes.c_void_p(stream.cuda_stream), MAP, mapped)
    return mapped.raw[0], mapped.raw[1]


def of_kernels(graph: torch.cuda.CUDAGraph) -> list[tuple[int, int, int]]:
    """Of each kernel the domain that it asks for, 1: of remote traffic; and the map, {default, remote}."""
    whole, count = ctypes.c_void_p(graph.raw_cuda_graph()), ctypes.c_size_t()
    _ask("cuGraphGetNodes", whole, None, ctypes.byref(count))
    nodes = (ctypes.c_void_p * count.value)()
    _ask("cuGraphGetNodes", whole, nodes, ctypes.byref(count))
    found = []
    for node in map(ctypes.c_void_p, nodes):
        kind = ctypes.c_int()
        _ask("cuGraphNodeGetType", node, ctypes.byref(kind))
        if kind.value == KERNEL:
            domain, mapped = (ctypes.create_string_buffer(VALUE_BYTES) for _ in range(2))
            _ask("cuGraphKernelNodeGetAttribute", node, DOMAIN, domain)
            _ask("cuGraphKernelNodeGetAttribute", node, MAP, mapped)
            found.append((domain.raw[0], mapped.raw[0], mapped.raw[1]))
    return found


def _ask(name: str, *arguments: object) -> None:
    if status := getattr(ctypes.CDLL("libcuda.so.1"), name)(*arguments):
        raise RuntimeError(f"{name}: CUDA error {status}")
