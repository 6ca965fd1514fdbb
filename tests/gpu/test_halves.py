"""Goal: sums of 16-bit floats are those of 32 bits, rounded, whichever instructions make them.

Method: every value of both types beside some hundreds of others, among them infinities, NaNs and what has the smallest
exponents; through packets, slots and what peers' kernels read, out of place and in place. Of four ranks two add
minus zero, which changes no value: in which order a sum's parts come is a matter of the algorithm.
"""

import pytest

from gpu import gpus
from starling import Communicator

pytestmark = pytest.mark.gpu
COUNTS = (4_096, 65_536 + 24, (1 << 20) + 40, 9 << 20)
WAIT_S = 20


def sums(comm: Communicator) -> None:
    import torch

    device = torch.device(comm.context.device)
    torch.cuda.set_device(device)
    stream = torch.cuda.Stream(device)
    for dtype in (torch.float16, torch.bfloat16):
        for turn, count in enumerate(COUNTS):
            number = torch.arange(count, device=device)
            values = [
                (bits & 0xFFFF).to(torch.uint16).view(dtype)
                for bits in (number, number * 40_503 + (number >> 16) * 257 + 24_593 * turn)
            ]
            values += [torch.full_like(values[0], -0.0) for _ in range(comm.size - len(values))]
            expected = (values[0].float() + values[1].float()).to(dtype)
            for in_place in (False, True):
                data = values[comm.rank].clone()
                out = data if in_place else torch.zeros_like(data)
                torch.cuda.synchronize()
                comm.all_reduce(data, out, stream=stream).wait(WAIT_S)
                stream.synchronize()
                number_seen, number_expected = ~out.isnan(), ~expected.isnan()
                same = out.view(torch.uint16).to(torch.int32) == expected.view(torch.uint16).to(torch.int32)
                wrong = (
                    ((number_seen != number_expected) | (number_expected & ~same))
                    .nonzero()[:4]
                    .flatten()
                    .tolist()
                )
                where = f"{dtype}, {count}, {'in place' if in_place else 'apart'}"
                assert not wrong, (where, [(values[0][k], values[1][k], out[k], expected[k]) for k in wrong])


@pytest.mark.timeout(60)
@pytest.mark.parametrize("ranks", (2, 4))
@pytest.mark.parametrize("as_", ("threads", "processes"))
def test_sums(as_: str, ranks: int) -> None:
    gpus.skip_unless(ranks)
    gpus.MACHINES[as_].run(ranks, sums, timeout=50, operation_timeout=10)
