"""The table of instructions, as src/wire/opcodes.h has it (a test compares the two)."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Opcode:
    """What an instruction reads and writes: ``destinations = combine(sources)`` between waits and signals."""

    name: str
    receives: bool
    sends: bool
    reads_source: bool
    writes_destination: bool
    reduces: bool

    @property
    def reduces_into(self) -> bool:
        """Whether its destination is the first operand of what it reduces."""
        return self.reduces and not self.receives


_TABLE = (
    #       name              receives sends  source destination reduces
    Opcode("nop", False, False, False, False, False),
    Opcode("copy", False, False, True, True, False),
    Opcode("reduce", False, False, True, True, True),
    Opcode("send", False, True, True, False, False),
    Opcode("recv", True, False, False, True, False),
    Opcode("recv_send", True, True, False, False, False),
    Opcode("recv_copy_send", True, True, False, True, False),
    Opcode("recv_reduce_send", True, True, True, False, True),
    Opcode("recv_reduce_copy", True, False, True, True, True),
    Opcode("recv_reduce_copy_send", True, True, True, True, True),
    Opcode("reduce_send", False, True, True, True, True),
)

OPCODES: dict[str, Opcode] = {opcode.name: opcode for opcode in _TABLE}
