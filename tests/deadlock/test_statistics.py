"""Goal: intervals cover what they promise. Method: known values, and coverage counted over binomial draws."""

from __future__ import annotations

import random

import pytest

from starling.deadlock.statistics import agree, planted_interval, wilson


def test_wilson_at_known_values() -> None:
    assert wilson(0, 100) == (0.0, pytest.approx(0.0370, abs=1e-4))
    assert wilson(100, 100) == (pytest.approx(0.9630, abs=1e-4), 1.0)
    low, high = wilson(50, 100)
    assert (low, high) == (pytest.approx(0.4038, abs=1e-4), pytest.approx(0.5962, abs=1e-4))


def test_wilson_covers() -> None:
    rng = random.Random(1)
    covered = 0
    for _ in range(1000):
        hits = sum(rng.random() < 0.03 for _ in range(300))
        low, high = wilson(hits, 300)
        covered += low <= 0.03 <= high
    assert 920 <= covered <= 985


def test_a_planted_estimate_without_hits_keeps_an_upper_end() -> None:
    low, high = planted_interval(0, 0, samples=1000, hits=0, bound=1e-4)
    assert low == 0
    assert high == pytest.approx(1e-4 * 0.00299, rel=0.01)
    assert planted_interval(1e-5, 1e-6, 1000, 100, 1e-4) == pytest.approx((8.04e-6, 1.196e-5), rel=1e-3)


def test_agreement_allows_for_the_errors_of_both() -> None:
    assert agree(320, 32_000, 0.0110, 32_000)
    assert not agree(320, 32_000, 0.0130, 32_000)
    assert agree(0, 100, 0.0, 100)
