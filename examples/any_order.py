"""Four ranks launch the same all-reduces, each in an order of its own, with device synchronizations in between.

    python examples/any_order.py

This program hangs every other collective library: each rank's device works on a collective that the others have
not reached. Here a collective that cannot progress gives its place to one that can.
"""

import random

import numpy as np

import starling
from starling.launch import run_processes

RANKS, LAYERS, STEPS = 4, 16, 20


def train(comm: starling.Communicator) -> starling.Statistics:
    source = random.Random(comm.rank)
    gradients = [np.empty(1 << (8 + layer % 8), np.float32) for layer in range(LAYERS)]
    for step in range(STEPS):
        requests = []
        for layer in source.sample(range(LAYERS), LAYERS):
            gradients[layer].fill(comm.rank + step)
            # A name makes it a lane of its own: ranks need not agree on the order of lanes.
            requests.append(comm.all_reduce(gradients[layer], op="avg", lane=f"layer {layer}"))
            if source.random() < 0.3:
                starling.cpu.synchronize()
        starling.wait_all(requests)
        for gradient in gradients:
            assert (gradient == step + (comm.size - 1) / 2).all()
    return comm.context.statistics()


def main() -> None:
    for rank, counters in enumerate(run_processes(RANKS, train)):
        print(
            f"rank {rank}: {counters.completions} all-reduces done, yielded {counters.parks} times, the daemon "
            f"left {counters.quits_stuck + counters.quits_drained + counters.quits_idle} times"
        )


if __name__ == "__main__":
    main()
