"""Goal: `starling diagnose` reads a real nvidia-smi, and ties a living rank to its GPU.

Method: one rank on the last GPU, itself looked at while it lives; what is read is held against what PyTorch says of the
same GPU. That a GPU slows down cannot be had here: the answers that say so are made in tests/diagnose.
"""

import subprocess

import pytest

from gpu import gpus
from starling import Communicator
from starling.diagnose import gpus as seen_gpus
from starling.diagnose import sources
from starling.diagnose.host import Hosts
from starling.diagnose.job import jobs_of

pytestmark = pytest.mark.gpu


def look(comm: Communicator) -> tuple[list[seen_gpus.Gpu], seen_gpus.Gpu | None, str]:
    import os

    import torch

    values = torch.ones(1000, device=comm.context.device)
    comm.all_reduce(values).wait(10)
    seen = seen_gpus.of_this_host()
    jobs = jobs_of(sources.of_this_host())
    record, job = next(
        (record, job)
        for job in jobs
        for record in job.records
        if record.pid == os.getpid() and record.state == "live"
    )
    uuid = str(torch.cuda.get_device_properties(comm.context.device).uuid)
    return seen, seen_gpus.gpu_of(record, job, seen, Hosts()), uuid


@pytest.mark.timeout(60)
def test_a_real_nvidia_smi() -> None:
    gpus.skip_unless(1)
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    last = f"cuda:{gpus.count() - 1}"
    ((seen, own, uuid),) = gpus.MACHINES["processes"].launch(1, look, context={"device": last}, timeout=50)
    print(*seen, own, uuid, sep="\n")
    assert len(seen) == len([line for line in listed.splitlines() if line.startswith("GPU")])
    for gpu in seen:
        assert gpu.uuid in listed
        assert 10 < int(gpu.degrees) < 110
    assert own is not None
    assert own.uuid.endswith(uuid)
