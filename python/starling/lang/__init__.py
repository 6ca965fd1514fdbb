"""The language of algorithms (GC3 section 3): write a program, get a verified plan.

docs/LANGUAGE.md is the tutorial and the reference.
"""

from starling.lang.collectives import (
    STANDARD,
    AllGather,
    AllReduce,
    AllToAll,
    AllToNext,
    Broadcast,
    Collective,
    Gather,
    Reduce,
    ReduceScatter,
    Scatter,
    SendRecv,
    leaf,
    reduction,
)
from starling.lang.errors import (
    Place,
    PostconditionError,
    ProgramError,
    StaleReferenceError,
    UninitialisedChunkError,
)
from starling.lang.program import Operation, Program, Ref, Span
from starling.lang.value import Value

__all__ = [
    "STANDARD",
    "AllGather",
    "AllReduce",
    "AllToAll",
    "AllToNext",
    "Broadcast",
    "Collective",
    "Gather",
    "Operation",
    "Place",
    "PostconditionError",
    "Program",
    "ProgramError",
    "Reduce",
    "ReduceScatter",
    "Ref",
    "Scatter",
    "SendRecv",
    "Span",
    "StaleReferenceError",
    "UninitialisedChunkError",
    "Value",
    "leaf",
    "reduction",
]
