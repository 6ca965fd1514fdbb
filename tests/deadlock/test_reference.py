"""Goal: the C++ engine says what DFCCL §2.4.1 says. Method: hypothesis draws groups and events; a literal simulation
(parts, states, dependency graph, search for a cycle after every event) and the engine judge the same events, and on
small models the engine's own random rounds are judged one by one and counted."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from starling.deadlock import Configuration, engine, reference

MODELS = ("single_queue", "synchronization")


@st.composite
def configurations(draw: st.DrawFn, model: str) -> Configuration:
    gpus = draw(st.integers(1, 5))
    members = st.lists(st.integers(0, gpus - 1), min_size=1, max_size=gpus, unique=True)
    groups = draw(st.lists(st.tuples(members, st.integers(1, 5)), min_size=1, max_size=4))
    rest = sorted(set(range(gpus)) - {gpu for group, _ in groups for gpu in group})
    if rest:
        groups.append((rest, 1))
    return Configuration(
        groups=groups,
        gpus=gpus,
        model=model,
        order=draw(st.sampled_from(("interleaved", "concatenated"))),
        disorder_probability=draw(st.floats(0, 0.8)),
        synchronization_probability=draw(st.floats(0, 0.6)),
    )


@pytest.mark.parametrize("model", MODELS)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_the_engine_judges_events_as_the_paper_says(model: str, data: st.DataObject, seed: int) -> None:
    configuration = data.draw(configurations(model))
    program = reference.draw_program(configuration, random.Random(seed))
    expected = reference.deadlocks(program, model)
    judgement = engine.judge(program, getattr(engine.Rule, model))
    assert judgement.exact == expected
    assert bool(judgement.blocked) == expected
    if model == "synchronization":
        assert judgement.released or not expected  # the released check is a necessary condition


@pytest.mark.parametrize("model", MODELS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_counted_rounds_are_the_judged_ones(model: str, data: st.DataObject, seed: int) -> None:
    configuration = data.draw(configurations(model))
    rounds, built, rule = 20, configuration.build(), getattr(engine.Rule, model)
    counts = engine.count_deadlocks(built, rounds=rounds, seed=seed, threads=1)
    programs = [engine.round_program(built, seed, number) for number in range(rounds)]
    judgements = [engine.judge(program, rule) for program in programs]
    assert counts.exact == sum(judgement.exact for judgement in judgements)
    assert counts.released == sum(judgement.released for judgement in judgements)
    assert counts.exact == sum(reference.deadlocks(program, model) for program in programs)


@pytest.mark.parametrize("order", ("interleaved", "concatenated"))
@pytest.mark.parametrize("model", MODELS)
def test_random_rounds_are_distributed_as_described(model: str, order: str) -> None:
    """Ratios of the literal walk over the lists and of the engine's jumps agree within five standard errors."""
    configuration = Configuration(
        groups=[([0, 1], 4), ([1, 2], 6), ([0, 2], 5)],
        gpus=3,
        model=model,
        order=order,
        disorder_probability=0.1 if model == "synchronization" else 0.01,
        synchronization_probability=0.15,
    )
    rounds, rng, rule = 3000, random.Random(5), getattr(engine.Rule, model)
    literal = (
        sum(engine.judge(reference.draw_program(configuration, rng), rule).exact for _ in range(rounds))
        / rounds
    )
    counts = engine.count_deadlocks(configuration.build(), rounds=200_000, seed=3, threads=1)
    error = math.sqrt(literal * (1 - literal) / rounds)
    assert 0.01 < literal < 0.9
    assert abs(counts.exact / counts.rounds - literal) < 5 * error


def test_base_lists_follow_the_order() -> None:
    groups = [([0, 1], 2), ([0], 3)]
    assert reference.base_lists(groups, 2, "interleaved") == [[0, 2, 1, 3, 4], [0, 1]]
    assert reference.base_lists(groups, 2, "concatenated") == [[0, 1, 2, 3, 4], [0, 1]]
    model = Configuration(groups=groups, gpus=2, order="concatenated").build()
    assert engine.round_program(model, 1, 0).events == [[0, 1, 2, 3, 4], [0, 1]]
