CAMPAIGNS: list[str]

class Report:
    failure: str
    virtual_ns: int
    steps: int
    operations: int
    instructions: int
    parks: int
    quits: int
    launches: int
    synchronizations: int

class FailedSeed:
    seed: int
    failure: str

class Soak:
    def __init__(self, campaign: str, first_seed: int, threads: int) -> None: ...
    def run(self, seconds: float, seed_limit: int) -> None: ...
    @property
    def seeds(self) -> int: ...
    @property
    def total(self) -> Report: ...
    @property
    def failures(self) -> list[FailedSeed]: ...

class Event:
    rank: int
    block: int
    time_ns: int
    kind: int  # TraceEvent of src/wire/trace.h
    lane: int
    sequence: int
    detail: int

class Replay:
    report: Report
    story: str
    shrunk_story: str
    events: list[Event]

class PlanRuns:
    def __init__(self, texts: list[str], origins: list[list[list[tuple[int, int]]]]) -> None: ...
    def run(self, largest_count: int, rounds: int, seed: int) -> Report: ...

def replay(campaign: str, seed: int, with_shrinking: bool = True) -> Replay: ...
