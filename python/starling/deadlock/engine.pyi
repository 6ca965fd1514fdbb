"""Types of the C++ engine (src/python/study.cc)."""

from collections.abc import Callable, Sequence
from enum import Enum

SYNCHRONIZE: int

class Rule(Enum):
    single_queue = ...
    synchronization = ...

class Order(Enum):
    interleaved = ...
    concatenated = ...

class Decision(Enum):
    exact = ...
    released = ...

class Group:
    gpus: list[int]
    collectives: int
    def __init__(self, gpus: Sequence[int], collectives: int) -> None: ...

class Model:
    gpus: int
    launches: int
    components: int
    def __init__(
        self,
        *,
        rule: Rule,
        order: Order,
        gpus: int,
        groups: Sequence[Group],
        disorder_probability: float,
        synchronization_probability: float,
    ) -> None: ...

class Program:
    events: list[list[int]]
    members: list[list[int]]
    group: list[int]
    def __init__(
        self, events: Sequence[Sequence[int]], members: Sequence[Sequence[int]], group: Sequence[int]
    ) -> None: ...

class Blocked:
    gpu: int
    event: int
    executing: list[int]
    waits_for: list[int]

class Judgement:
    exact: bool
    released: bool
    blocked: list[Blocked]

class Shrunk:
    program: Program
    gpus: list[int]
    collectives: list[int]

class Counts:
    rounds: int
    exact: int
    released: int
    both: int
    calm: int

class Estimate:
    probability: float
    standard_error: float
    samples: int
    hits: int
    bound: float

class Replayed:
    failure: str
    hangs: bool
    state: str
    launches: int
    synchronizations: int
    parks: list[int]
    stuck_quits: int
    idle_quits: int
    limited_quits: int
    daemon_launches: int
    virtual_us: float
    steps: int

class Replayer:
    def __init__(self) -> None: ...
    def run(
        self,
        program: Program,
        lane_of: Sequence[int] = ...,
        *,
        seed: int = 1,
        wild: bool = False,
        checks: bool = True,
        yielding: bool = True,
        pace_ns: int = 0,
    ) -> Replayed: ...

Progress = Callable[[int], bool]

def judge(program: Program, rule: Rule) -> Judgement: ...
def shrink(program: Program, rule: Rule) -> Shrunk: ...
def taking_part(program: Program, rule: Rule) -> Shrunk: ...
def count_deadlocks(
    model: Model,
    rounds: int,
    seed: int = 1,
    threads: int = 0,
    exact: bool = True,
    released: bool = True,
    progress: Progress | None = None,
) -> Counts: ...
def estimate_deadlocks(
    model: Model,
    samples: int,
    seed: int = 1,
    threads: int = 0,
    decision: Decision = ...,
    progress: Progress | None = None,
) -> Estimate: ...
def single_group_probability(gpus: int, collectives: int, disorder_probability: float) -> float: ...
def harmful_turns(model: Model) -> int: ...
def round_program(model: Model, seed: int, round: int) -> Program: ...
def find_deadlocks(model: Model, rounds: int, count: int, seed: int = 1, threads: int = 0) -> list[int]: ...
def planted_deadlocks(model: Model, rounds: int, count: int, seed: int = 1) -> list[Program]: ...
def three_d_groups(
    tensor: int, data: int, pipeline: int, tensor_collectives: int, data_collectives: int
) -> list[Group]: ...
