"""Goal: DFCCL §6.1's programs, which hang other libraries, finish on GPUs with right sums, in all situations of §2.3.

Method: ranks launch eight all-reduces in random orders of their own, with torch.cuda.synchronize() after every k-th
submission; as threads and as processes. Then the cases of `starling bench gpu-disorder` (synchronizing calls, few
multiprocessors left, one hardware queue, one stream) through PyTorch and through the library's own API. Every element
is checked; who makes no progress is ended.
"""

import functools
import random

import pytest

from comm.programs import COUNTS, random_order
from gpu import gpus
from starling import Communicator
from starling.bench.gpu_disorder import OURS, Run, jobs_of
from starling.bench.gpu_programs import CASES

pytestmark = pytest.mark.gpu
ITERATIONS = 200
OCCUPIED_ITERATIONS = 50  # at least, while multiprocessors are occupied: four H200 do 500 in those 90 s
FEWEST = "all SMs but 4 occupied"  # fewer than there are streams


def disordered(comm: Communicator, iterations: int, synchronize_every: int, seed: int) -> dict[str, int]:
    """As comm.programs.disordered, on CUDA tensors."""
    import torch

    device = torch.device(comm.context.device)
    torch.cuda.set_device(device)
    stream = torch.cuda.Stream(device)
    with torch.cuda.stream(stream):
        patterns = [(torch.arange(count, device=device) % 31).float() for count in COUNTS]
        inputs = [torch.empty(count, device=device) for count in COUNTS]
        outputs = [torch.empty(count, device=device) for count in COUNTS]
        ranks = comm.size
        for iteration in range(iterations):
            for which, pattern in enumerate(patterns):
                torch.add(pattern, float(iteration % 100 + which + comm.rank), out=inputs[which])
                outputs[which].fill_(-1)
            stream.synchronize()
            requests = {}
            for submitted, which in enumerate(random_order(iteration, comm.rank, seed), 1):
                requests[which] = comm.all_reduce(inputs[which], outputs[which], lane=f"gradient {which}")
                if synchronize_every and submitted % synchronize_every == 0:
                    torch.cuda.synchronize()
            for which, request in requests.items():
                request.wait(30)
                expected = ranks * (patterns[which] + (iteration % 100 + which)) + ranks * (ranks - 1) // 2
                if not torch.equal(outputs[which], expected):
                    raise AssertionError(f"iteration {iteration}, all-reduce {which} is wrong")
    return vars(comm.context.statistics())


@pytest.mark.timeout(200)
@pytest.mark.parametrize("every", (0, 1, 2, 4))
@pytest.mark.parametrize("machine", sorted(gpus.MACHINES))
def test_programs(machine: str, every: int) -> None:
    ranks = gpus.places()
    if ranks < 2:
        pytest.skip("disorder needs two GPUs")
    statistics = gpus.MACHINES[machine].run(
        ranks,
        functools.partial(disordered, iterations=ITERATIONS, synchronize_every=every, seed=7),
        timeout=150,
        operation_timeout=30,
    )
    for of_rank in statistics:
        assert of_rank["completions"] == of_rank["submissions"] == ITERATIONS * len(COUNTS)
    if every:
        assert sum(of_rank["quits_stuck"] + of_rank["quits_drained"] for of_rank in statistics) > 0


@pytest.mark.timeout(400)
@pytest.mark.parametrize("connections", sorted({case.connections for case in CASES.values()}))
@pytest.mark.parametrize("library", OURS)
@pytest.mark.parametrize("ranks", (2, 4))
def test_situations(ranks: int, library: str, connections: int) -> None:
    """Cases run one after the other in the same processes, for who has parked once must go on being right."""
    gpus.skip_unless(ranks)
    shared = gpus.count() < ranks  # of a GPU two ranks cannot both occupy all but a few multiprocessors
    cases = [
        name
        for name, case in CASES.items()
        if case.connections == connections and not (shared and case.left_free) and name != FEWEST
    ]
    check_cases(ranks, library, cases)


@pytest.mark.timeout(200)
@pytest.mark.parametrize("library", OURS)
@pytest.mark.parametrize("ranks", (2, 4))
@pytest.mark.parametrize("guard", ("watch", "1"))  # the first is the default
def test_fewer_multiprocessors_than_streams(
    guard: str, ranks: int, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams that stand must not take one each: their watches have turns, and a guard takes one in all."""
    if gpus.count() < ranks:
        pytest.skip("of a GPU two ranks cannot both occupy all but a few multiprocessors")
    monkeypatch.setenv("STARLING_GUARD", guard)
    check_cases(ranks, library, [FEWEST])


def check_cases(ranks: int, library: str, cases: list[str]) -> None:
    rows = Run(ranks, ITERATIONS).together(jobs_of(library, cases))
    assert [row["case"] for row in rows] == cases
    least = {name: OCCUPIED_ITERATIONS if CASES[name].left_free else ITERATIONS for name in cases}
    bad = [row for row in rows if row["outcome"] != "right" or row["iterations"] < least[row["case"]]]
    assert not bad, "\n".join(
        f"{row['case']}: {row['outcome']} after {row['iterations']} iterations: {row.get('text', '')}\n"
        f"{row.get('stacks', '')}"
        for row in bad
    )


def messages(comm: Communicator, rounds: int) -> float:
    """Many small operations of random lanes, all in flight; the sum tells whether all came."""
    import torch

    order = random.Random(comm.rank)
    lanes = 32
    tensors = [torch.ones(16, device=comm.context.device) for _ in range(lanes)]
    torch.cuda.synchronize()
    for _ in range(rounds):
        requests = [
            comm.all_reduce(tensors[lane], op="max", lane=f"small {lane}")
            for lane in order.sample(range(lanes), lanes)
        ]
        for request in requests:
            request.wait(30)
    return float(sum(tensor.sum() for tensor in tensors))


@pytest.mark.timeout(120)
def test_many_small_operations() -> None:
    results = gpus.MACHINES["threads"].run(
        2, functools.partial(messages, rounds=200), timeout=100, operation_timeout=30
    )
    assert results == [32 * 16.0] * 2
