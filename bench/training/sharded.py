"""Training with everything sharded (PyTorch's FSDP2): a way of bench/train.py beside those that keep whole copies.

Each rank keeps a part of every parameter, of its gradient and of the optimizer's state. The parameters of a layer are
gathered before it runs, forward and again backward, and its gradients are summed and scattered behind it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .gradients import InTheModel

AHEAD = 2  # layers whose parameters are gathered before they are needed, where they are prefetched


class FullySharded(InTheModel):
    """``fully_shard`` on each layer and on the whole.

    ``half``: parameters are gathered and used as bfloat16, gradients summed as float32, as where autocast does it.
    ``prefetched``: gathers are launched two layers ahead; else FSDP2's own order, none forward and one backward.
    """

    def __init__(self, model: nn.Sequential, group: Any, half: bool, prefetched: bool) -> None:
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        mesh = DeviceMesh.from_group(group, next(model.parameters()).device.type)
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if half else MixedPrecisionPolicy()
        layers = list(model.children())
        for layer in layers:  # the last is needed again at once, backward
            fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=layer is not layers[-1])
        self.model = fully_shard(model, mesh=mesh, mp_policy=policy)
        if prefetched:
            for place, layer in enumerate(layers):
                layer.set_modules_to_forward_prefetch(layers[place + 1 : place + 1 + AHEAD])
                layer.set_modules_to_backward_prefetch(layers[max(0, place - AHEAD) : place][::-1])
