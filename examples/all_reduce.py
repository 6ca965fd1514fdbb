"""The smallest program: every process adds its numbers to the others'.

torchrun --nproc-per-node=4 examples/all_reduce.py
mpirun -n 4 python examples/all_reduce.py

As root Open MPI wants --allow-run-as-root, on fewer cores --oversubscribe.
"""

import numpy as np

import starling

comm = starling.Communicator()  # rank, size and job as the launcher says
numbers = np.full(8, comm.rank + 1.0)
comm.all_reduce(numbers).wait()
print(f"rank {comm.rank} of {comm.size}: {numbers[0]:g}", flush=True)
