"""Plans in Python: the classes, the text form, and the interpreter that defines what a plan means.

``parse`` and ``to_text`` translate the text form (docs/WIRE.md); ``run`` executes all ranks of a plan on numpy
arrays; ``builtin`` makes the library's own plans, and ``verify`` asks its verifier.
"""

from starling.ir.builtin import algorithms, builtin, lane_slots, takes_unequal_parts, verify
from starling.ir.element import DATA_TYPES, REDUCE_OPS
from starling.ir.interpreter import DeadlockError, run
from starling.ir.opcodes import OPCODES, Opcode
from starling.ir.plan import Block, Connection, Dependency, Holding, Instruction, Plan, RankPlan, Slice
from starling.ir.text import PlanTextError, parse, to_text

__all__ = [
    "DATA_TYPES",
    "OPCODES",
    "REDUCE_OPS",
    "Block",
    "Connection",
    "DeadlockError",
    "Dependency",
    "Holding",
    "Instruction",
    "Opcode",
    "Plan",
    "PlanTextError",
    "RankPlan",
    "Slice",
    "algorithms",
    "builtin",
    "lane_slots",
    "parse",
    "run",
    "takes_unequal_parts",
    "to_text",
    "verify",
]
