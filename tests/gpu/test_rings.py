"""Goal: rings and chains of puts give right results on GPUs, whatever the length, the place and the type, in any
order of launches and with ranks that come late.

Method: ``ring_put`` and ``chain_put`` by their names, with tiles of 64 KB; two and four ranks, as threads and as
processes. Sums of small whole numbers are exact in any order. A rank that is late makes blocks park in the middle of
a tile, where others go on for them.
"""

import functools
import time

import pytest

from gpu import gpus
from starling import Communicator

pytestmark = pytest.mark.gpu
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")
ALGORITHM = "ring_put@65536"
CHAIN = "chain_put@65536"
COUNTS = (1, 1021, 65536, 1 << 20, (4 << 20) + 52, 12 << 20)  # of a rank's part; the last: many tiles


def call(comm: Communicator, collective: str, data, out, **options):  # type: ignore[no-untyped-def]
    return getattr(comm, collective)(data, out, algorithm=ALGORITHM, **options)


def check_all(comm: Communicator, dtype: str, late: bool) -> None:
    import torch

    device, size, rank = torch.device(comm.context.device), comm.size, comm.rank
    torch.cuda.set_device(device)
    stream = torch.cuda.Stream(device)
    kind = getattr(torch, dtype)
    for turn, count in enumerate(COUNTS):
        pattern = (torch.arange(count * size, device=device) % 13).to(kind)
        for collective in COLLECTIVES:
            for in_place in (False, True):
                small = collective == "all_gather"
                own = pattern[:count] + rank if small else pattern + rank
                parts = {"all_reduce": size, "all_gather": size, "reduce_scatter": 1}[collective]
                out = torch.full((parts * count,), -1, dtype=kind, device=device)
                data = own.clone()
                if in_place and collective == "all_gather":
                    data = out[rank * count : (rank + 1) * count]
                    data.copy_(own)
                elif in_place and collective == "reduce_scatter":
                    out = data[rank * count : (rank + 1) * count]
                elif in_place:
                    out = data
                total = size * (size - 1) // 2
                if collective == "all_gather":
                    expected = torch.cat([pattern[:count] + r for r in range(size)])
                else:
                    expected = pattern * size + total
                    if collective == "reduce_scatter":
                        expected = expected[rank * count : (rank + 1) * count]
                torch.cuda.synchronize()
                if late and (turn + in_place) % size == rank:
                    time.sleep(0.01)
                if in_place or turn % 2:  # submitted by the CPU too
                    call(comm, collective, data, out, stream=stream).wait(20)
                else:
                    call(comm, collective, data, out).wait(20)
                stream.synchronize()
                wrong = int((out != expected).sum())
                where = f"{collective} of {count}, {dtype}, {'in place' if in_place else 'apart'}"
                assert wrong == 0, f"{where}: {wrong} elements are wrong on rank {rank}"


def chains(comm: Communicator, dtype: str, late: bool) -> None:
    import torch

    device, size, rank = torch.device(comm.context.device), comm.size, comm.rank
    torch.cuda.set_device(device)
    stream = torch.cuda.Stream(device)
    kind = getattr(torch, dtype)
    for turn, count in enumerate(COUNTS):
        pattern = (torch.arange(count, device=device) % 13).to(kind)
        root = turn % size
        for collective in ("broadcast", "reduce"):
            for in_place in (False, True):
                data = pattern + rank
                out = data if in_place else torch.full_like(data, -1)
                expected = pattern + root
                if collective == "reduce":
                    expected = pattern * size + size * (size - 1) // 2 if rank == root else out.clone()
                torch.cuda.synchronize()
                if late and (turn + in_place) % size == rank:
                    time.sleep(0.01)
                options = {"algorithm": CHAIN, "root": root}
                if turn % 2 == 0:  # submitted by the CPU too
                    options["stream"] = stream
                getattr(comm, collective)(data, out, **options).wait(20)
                stream.synchronize()
                wrong = int((out != expected).sum())
                where = f"{collective} of {count} from {root}, {dtype}, {'in place' if in_place else 'apart'}"
                assert wrong == 0, f"{where}: {wrong} elements are wrong on rank {rank}"


def averages(comm: Communicator) -> None:
    import torch

    device = torch.device(comm.context.device)
    torch.cuda.set_device(device)
    data = torch.full((1 << 22,), float(comm.size * (comm.rank + 1)), device=device)
    stream = torch.cuda.Stream(device)
    torch.cuda.synchronize()
    for turn in range(4):
        out = torch.empty_like(data)
        torch.cuda.synchronize()
        call(comm, "all_reduce", data, out, op="avg", stream=stream).wait(20)
        stream.synchronize()
        expected = comm.size * (comm.size + 1) / 2
        assert bool((out == expected).all()), f"turn {turn}: {out[:4]} where {expected} was expected"


def crossed(comm: Communicator) -> None:
    """Two lanes in the opposite order on half of the ranks, again and again, with more tiles than a budget lasts."""
    import torch

    device = torch.device(comm.context.device)
    torch.cuda.set_device(device)
    streams = [torch.cuda.Stream(device) for _ in range(2)]
    data = [torch.ones(6 << 20, device=device) * (comm.rank + 1) for _ in range(2)]
    out = [torch.zeros(6 << 20, device=device) for _ in range(2)]
    torch.cuda.synchronize()
    for turn in range(20):
        order = (0, 1) if (comm.rank + turn) % 2 else (1, 0)
        requests = []
        for which in order:
            requests.append(
                call(comm, "all_reduce", data[which], out[which], lane=f"lane {which}", stream=streams[which])
            )
            torch.cuda.synchronize()
        for request in requests:
            request.wait(30)
        torch.cuda.synchronize()
        for which in range(2):
            assert bool((out[which] == comm.size * (comm.size + 1) // 2).all()), f"turn {turn}"
            out[which].zero_()
        torch.cuda.synchronize()


@pytest.mark.parametrize("machine", ("processes", "threads"))
@pytest.mark.parametrize("size", (2, 4))
def test_rings(size: int, machine: str) -> None:
    gpus.skip_unless(size)
    gpus.skip_if_shared(machine)
    run = functools.partial(gpus.MACHINES[machine].run, size, timeout=100, operation_timeout=30)
    run(functools.partial(check_all, dtype="float32", late=False))
    run(functools.partial(check_all, dtype="bfloat16", late=True))
    run(functools.partial(chains, dtype="float32", late=False))
    run(functools.partial(chains, dtype="bfloat16", late=True))
    run(averages)
    if machine == "processes":  # a thread's device synchronization waits for its peers' streams as well
        run(crossed)
