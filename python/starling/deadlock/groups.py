"""The groupings of the paper's Table 1."""

from __future__ import annotations

from .configuration import MOST_COLLECTIVES, MOST_GPUS, ConfigurationError, GroupList

# DFCCL names the sizes of its free groups (28 of three GPUs, four of eight); these are the members.
_PAIRS = (
    "0,1 1,3 0,2 0,4 1,4 2,4 3,4 5,7 5,6 6,8 5,9 6,9 7,9 8,9 10,12 10,11 11,13 10,14 11,14 12,14 13,14 "
    "15,16 15,17 17,18 15,19 16,19 17,19 18,19"
)
_HUBS = (4, 9, 14, 19)
_FEWER = (*range(14), 28, 29)  # the half of the groups that has 400 collectives, not 1200


def free_groups(gpus: int = 64, fewer: int = 400, more: int = 1200) -> GroupList:
    """The 32 free groups over 64 GPUs; over 128, every group has two more of its own."""
    if gpus not in (64, 128):
        raise ValueError(f"the paper's free groupings have 64 or 128 GPUs, not {gpus}")
    members = [[int(gpu) for gpu in pair.split(",")] + [24 + i] for i, pair in enumerate(_PAIRS.split())]
    members += [[hub, 20, 21, 22, 23, 52 + 3 * j, 53 + 3 * j, 54 + 3 * j] for j, hub in enumerate(_HUBS)]
    if gpus == 128:
        members = [[*group, 64 + 2 * g, 65 + 2 * g] for g, group in enumerate(members)]
    return [(group, fewer if g in _FEWER else more) for g, group in enumerate(members)]


def one_group(gpus: int, collectives: int) -> GroupList:
    if gpus > MOST_GPUS or collectives > MOST_COLLECTIVES:
        raise ConfigurationError(
            f"the most is {MOST_GPUS:,} GPUs and {MOST_COLLECTIVES:,} collectives a group"
        )
    return [(list(range(gpus)), collectives)]


def overlapping_groups(overlap: int, gpus: int = 24, size: int = 4, launches: int = 1200) -> GroupList:
    """Every GPU in `overlap` groups of `size`, with `launches` launches on each whatever the overlap.

    Each layer of groups cuts the GPUs, in an order of its own, into groups of `size`.
    """
    if launches % overlap:
        raise ValueError(f"{launches} launches do not divide among {overlap} groups")
    groups: GroupList = []
    for layer in range(overlap):
        order = sorted(range(gpus), key=lambda gpu: ((gpu * _STRIDES[layer]) % gpus, gpu))
        groups += [(sorted(order[at : at + size]), launches // overlap) for at in range(0, gpus, size)]
    return groups


_STRIDES = (1, 5, 7, 11, 13, 17)  # all without a common factor with 24: each is another order of the GPUs
