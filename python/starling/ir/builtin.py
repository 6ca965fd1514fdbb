"""The library's own plans and its verifier, through the C++ module."""

from starling.ir.plan import Plan
from starling.ir.text import parse, to_text


def builtin(
    collective: str, algorithm: str, ranks: int, *, root: int = 0, blocks: int = 1, in_place: bool = False
) -> Plan:
    """A built-in plan. Raises starling.errors.InvalidArgument for an algorithm that does not take the request."""
    from starling._core import plan as native

    return parse(native.generate(collective, algorithm, ranks, root, blocks, in_place))


def algorithms(collective: str) -> list[str]:
    """Names of the collective's algorithms; the first takes every number of ranks."""
    from starling._core import plan as native

    return str(native.algorithms(collective)).split()


def verify(plan: Plan) -> int:
    """The least number of slots per connection with which the plan finishes; raises if the plan is wrong.

    One that needs more than ``lane_slots()`` is right, and can be added to no communicator.
    """
    from starling._core import plan as native

    return int(native.verify(to_text(plan))[0])


def takes_unequal_parts(plan: Plan) -> bool:
    """Whether it is right, too, for operations with counts for each rank; raises if it is wrong."""
    from starling._core import plan as native

    return not native.verify(to_text(plan))[1]


def lane_slots() -> int:
    """Messages under way on a connection that every lane of a communicator has room for."""
    from starling._core import plan as native

    return int(native.LANE_SLOTS)
