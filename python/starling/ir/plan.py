"""A plan: for each rank, for each block, a list of instructions (src/wire/plan.h, GC3 section 4)."""

from dataclasses import dataclass, field, replace

from starling.ir.opcodes import OPCODES, Opcode

COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "all_to_all",
    "gather",
    "scatter",
    "send_recv",
    "barrier",
    "custom",
)
REDUCING = frozenset({"all_reduce", "reduce_scatter", "reduce", "barrier"})
ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
PROTOCOLS = ("slots", "packets", "pull")
BUFFERS = ("input", "output", "scratch")
# As in src/plan/builder.h. All blocks of a rank are resident together.
MOST_RANKS, MOST_BLOCKS, MOST_CHANNELS = 4096, 64, 256
MOST_CHUNKS = 1 << 20  # of a buffer (src/plan/verify_layout.cc)
MOST_TILE_BYTES = (1 << 32) - 16  # a plan has them in a word


def is_tile(tile_bytes: int) -> bool:
    """Whether a plan can have them as ``tile_bytes``."""
    return 0 <= tile_bytes <= MOST_TILE_BYTES and tile_bytes % 16 == 0


@dataclass(frozen=True)
class Slice:
    """Contiguous chunks of a buffer of the rank."""

    buffer: str
    chunk: int
    chunks: int = 1


@dataclass(frozen=True)
class Connection:
    """One end of a connection: the peer, and the channel that both ends name it by."""

    peer: int
    channel: int


@dataclass(frozen=True)
class Dependency:
    """Wait until ``block`` of the same rank has finished ``instruction`` of the same tile."""

    block: int
    instruction: int


@dataclass(frozen=True)
class Instruction:
    """One primitive. ``receives`` are in the order of reduction; ``local_position`` of them precede the source."""

    opcode: Opcode
    size: Slice
    source: Slice | None = None
    destination: Slice | None = None
    receives: tuple[Connection, ...] = ()
    sends: tuple[Connection, ...] = ()
    local_position: int = 0
    final: bool = False
    after: tuple[Dependency, ...] = ()
    put: bool = False  # what recv receives, or another sends: its sender puts it there (protocol pull)

    def with_opcode(self, name: str) -> "Instruction":
        return replace(self, opcode=OPCODES[name])


@dataclass
class Block:
    instructions: list[Instruction] = field(default_factory=list)


@dataclass
class RankPlan:
    scratch_chunks: int = 0
    blocks: list[Block] = field(default_factory=list)


@dataclass(frozen=True)
class Holding:
    """What a custom collective must leave: output chunk ``chunk + k`` of the rank holds the reduction of the terms,
    each k chunks further. A term is an input chunk of a rank; None: of every rank, once each."""

    rank: int
    chunk: int
    chunks: int
    terms: tuple[tuple[int | None, int], ...]


@dataclass
class Plan:
    """All ranks' parts."""

    name: str
    collective: str
    rank_count: int
    root: int
    in_place: bool
    chunks_per_group: int
    input_groups: int
    output_groups: int
    ranks: list[RankPlan]
    protocol: str = "slots"  # how messages travel; what they mean is the same
    tile_bytes: int = 0  # of a chunk that go at once, at most: a multiple of 16; 0: as many as can be
    postcondition: tuple[Holding, ...] | None = (
        None  # of a custom collective; None: not known, as in old files
    )
    # Of the operations that it is meant for, smallest and largest, in bytes of the larger of a rank's buffers: what
    # its program says, or MSCCL XML. The text does not have it.
    sizes: tuple[int, int] | None = None

    def is_for(self, size_bytes: int) -> bool:
        """Whether it is meant for operations of this size."""
        return self.sizes is None or self.sizes[0] <= size_bytes <= self.sizes[1]

    def widest(self) -> int:
        """Chunks of the largest instruction."""
        return max(
            (i.size.chunks for rank in self.ranks for block in rank.blocks for i in block.instructions),
            default=1,
        )

    def tile_in(self, message_bytes: int) -> int:
        """Bytes of a chunk in one tile, where a message has room for so many (src/wire/plan.h)."""
        fits = max(16, message_bytes // self.widest() // 16 * 16)
        if not self.tile_bytes:
            return fits
        return self.tile_bytes if self.protocol == "pull" else min(self.tile_bytes, fits)

    def groups(self, buffer: str) -> int:
        return self.input_groups if buffer == "input" else self.output_groups

    def exists(self, buffer: str, rank: int) -> bool:
        """Whether the rank has the buffer: a reduce has its output at the root alone, and so on."""
        if buffer == "input":
            if self.collective in ("broadcast", "scatter"):
                return rank == self.root
            return self.collective != "send_recv" or rank == 0
        if self.collective in ("reduce", "gather"):
            return rank == self.root
        return self.collective != "send_recv" or rank == self.rank_count - 1
