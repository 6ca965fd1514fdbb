"""Goal: the Python of README.md and docs/PYTORCH.md runs as it stands.

Method: each page's blocks, one after the other, on two ranks under torchrun; what they take for granted (a model,
gradients, a program) is defined before.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ASSUMED = """
import torch
from torch.nn.parallel import DistributedDataParallel
from test_plans import neighbours

torch.set_num_threads(1)
model = torch.nn.Linear(4, 2)
gradients, output = torch.ones(8), torch.zeros(8)
program = neighbours(2)
"""

RESULTS = """
work.wait()
assert output.tolist() == [4.0] * 8, output  # of gradients that were summed before
model(torch.ones(3, 4)).sum().backward()
"""

END = """
total = torch.ones(5)
dist.all_reduce(total)
assert total.tolist() == [2.0] * 5, total
dist.destroy_process_group()
print("all of it ran", flush=True)
"""


@pytest.mark.parametrize(("page", "results"), [("README.md", ""), ("docs/PYTORCH.md", RESULTS)])
def test_blocks_of_python(repository_root: Path, tmp_path: Path, page: str, results: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (repository_root / page).read_text(), re.S)
    assert blocks
    script = tmp_path / "blocks.py"
    script.write_text("\n".join([ASSUMED, *blocks, results, END]))
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        str(script),
    ]
    here = Path(__file__).parent
    environment = dict(os.environ, PYTHONPATH=f"{here}{os.pathsep}{here.parent}")
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("all of it ran") == 2
