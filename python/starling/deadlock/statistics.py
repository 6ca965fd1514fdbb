"""Intervals of measured ratios."""

from __future__ import annotations

import math

Z95 = 1.959963984540054


def wilson(hits: int, rounds: int, z: float = Z95) -> tuple[float, float]:
    """Wilson's interval of a ratio; sensible at 0 and at `rounds` hits too."""
    ratio = hits / rounds
    scale = 1 + z * z / rounds
    centre = ratio + z * z / (2 * rounds)
    half = z * math.sqrt(ratio * (1 - ratio) / rounds + z * z / (4 * rounds * rounds))
    low = 0.0 if hits == 0 else (centre - half) / scale
    high = 1.0 if hits == rounds else (centre + half) / scale
    return low, high


def planted_interval(
    probability: float, standard_error: float, samples: int, hits: int, bound: float
) -> tuple[float, float]:
    """95 % interval of a planted estimate. Without any hit: what `samples` misses leave of the bound."""
    if hits == 0:
        return 0.0, bound * (1 - 0.05 ** (1 / samples))
    half = Z95 * standard_error
    return max(0.0, probability - half), min(bound, probability + half)


def agree(hits: int, rounds: int, other_ratio: float, other_rounds: int) -> bool:
    """Whether two measured ratios may be of one probability (two-sided test at 5 %).

    The paper's ratios come from 32,000 rounds and have an error of their own, so a comparison of our interval with
    the printed value alone would be too strict.
    """
    ratio = hits / rounds
    pooled = (hits + other_ratio * other_rounds) / (rounds + other_rounds)
    variance = pooled * (1 - pooled) * (1 / rounds + 1 / other_rounds)
    if variance == 0:
        return ratio == other_ratio
    return abs(ratio - other_ratio) <= Z95 * math.sqrt(variance)
