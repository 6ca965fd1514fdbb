"""Goal: tensor and data groups and pipeline stages are told from each other by what they call, and where their calls
do not tell, that is said.

Method: records of generated steps of training (training.py), in the orders that frameworks have.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from diagnose.records import job_of
from diagnose.training import SEQUENCE, SUMS, Training
from starling.diagnose.stages import EITHER, Dimension, dimensions, name_of

SHARDED_FORWARD = ("all_gather",) * 2
SHARDED_BACKWARD = ("all_gather", "reduce_scatter") * 2


def found_in(training: Training, made: Sequence[str] = ("tensor", "data", "pipeline")) -> list[Dimension]:
    return dimensions(job_of(training.records(made)))


def told(training: Training, made: Sequence[str] = ("tensor", "data", "pipeline")) -> dict[str, str]:
    """What each dimension is taken for, of those that are found."""
    found = {dimension.groups: dimension.kind for dimension in found_in(training, made)}
    names = {tuple(map(tuple, training.groups(name))): name for name in made}
    return {names[groups]: kind for groups, kind in found.items()}


def right(*names: str) -> dict[str, str]:
    return {name: name for name in names}


LAYOUTS = [(2, 2, 1), (4, 2, 1), (2, 1, 2), (4, 1, 2), (1, 2, 2), (1, 4, 2), (2, 2, 2), (4, 2, 2), (2, 4, 2)]


def names_of(stages: int, tensor: int, data: int) -> list[str]:
    return [n for n, s in (("pipeline", stages), ("tensor", tensor), ("data", data)) if s > 1]


@pytest.mark.parametrize("order", ["gpipe", "1f1b"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_each_dimension_is_told(layout: tuple[int, int, int], order: str) -> None:
    for in_pass, receives_first in itertools.product((SUMS, SEQUENCE, SUMS[:1]), (False, True)):
        training = Training(*layout, order=order, in_pass=in_pass, receives_first=receives_first)
        assert told(training) == right(*names_of(*layout)), (in_pass, receives_first)


def test_what_ranks_share_is_named() -> None:
    """Of a lagging stage, tensor place, replica, and one rank; 8 ranks, tensor places next to each other."""
    found = found_in(Training(2, 2, 2))
    assert name_of(found, {4, 5, 6, 7}) == "pipeline stage 1 of 2"
    assert name_of(found, {1, 3, 5, 7}) == "tensor rank 1 of 2"
    assert name_of(found, {2, 3, 6, 7}) == "data rank 1 of 2"
    assert name_of(found, {6}) == "pipeline stage 1 of 2, tensor rank 0 of 2, data rank 1 of 2"
    assert name_of(found, {0, 7}) == ""


@pytest.mark.parametrize("order", ["gpipe", "1f1b"])
@pytest.mark.parametrize("stages", [2, 4])
def test_gradients_that_are_summed_in_backward_passes(stages: int, order: str) -> None:
    """In each one, by a job that does not wait for the last micro-batch: as often as a tensor group calls."""
    training = Training(stages, 1, 2, order=order, in_backward=SUMS, after_step=())
    assert told(training) == right("pipeline", "data")


def test_receives_that_are_posted_ahead() -> None:
    """Each of the four middle ranks has 12 passes in three steps, each first one 6: before others gradients came."""
    training = Training(3, 2, 2, order="1f1b", in_backward=SUMS, after_step=(), posted_ahead=True)
    assert told(training) == right("pipeline", "tensor", "data")
    why = [f"they {what} of 72 forward passes" for what in ("reduced in 72", "called in 0")]
    assert [dimension.why for dimension in found_in(training)[1:]] == why


def test_one_micro_batch() -> None:
    """What a data group calls before activations come is not of their pass."""
    assert told(Training(4, 1, 2, micro_batches=1)) == right("pipeline", "data")
    assert told(Training(4, 2, 1, micro_batches=1)) == right("pipeline", "tensor")


def test_data_groups_that_call_more_than_tensor_groups() -> None:
    """Many small buckets: forward passes tell, counts would not."""
    training = Training(2, 2, 2, in_pass=SUMS[:1], after_step=("all_reduce",) * 40)
    assert told(training) == right("pipeline", "tensor", "data")


def test_buffers_that_are_handed_out_before_each_pass() -> None:
    """Broadcasts are called by both kinds."""
    training = Training(2, 1, 2, in_forward=("broadcast",))
    assert told(training) == right("pipeline", "data")


def test_sharded_parameters() -> None:
    """Gathered in each forward pass: beside a tensor group known as data; alone they may be either."""
    sharded = {"in_forward": SHARDED_FORWARD, "in_backward": SHARDED_BACKWARD, "after_step": ()}
    training = Training(2, 2, 2, in_pass=SEQUENCE * 4, **sharded)  # type: ignore[arg-type]
    assert told(training) == right("pipeline", "tensor", "data")
    alone = Training(2, 1, 2, **sharded)  # type: ignore[arg-type]
    assert told(alone) == {"pipeline": "pipeline", "data": EITHER}
    assert "and reduced in 0" in found_in(alone)[1].why


def test_steps_that_are_longer_than_what_is_remembered() -> None:
    """The last 256 calls have none of the data groups', or nothing else."""
    long = Training(2, 2, 2, in_pass=SUMS * 8, steps=2)
    assert told(long) == right("pipeline", "tensor", "data")
    burst = Training(1, 2, 2, in_pass=SUMS * 50, after_step=("all_reduce",) * 300)
    assert told(burst) == {"tensor": EITHER, "data": EITHER}
    between = Training(1, 2, 2, in_pass=SUMS * 8, steps=1, before_steps=("all_reduce",) * 250)
    assert told(between) == {"tensor": EITHER, "data": EITHER}


def test_parameters_that_are_handed_out_at_the_start() -> None:
    """More calls of the data groups than the tensor groups have had yet."""
    assert told(Training(1, 2, 2, steps=1, before_steps=("broadcast",) * 100)) == {
        "tensor": EITHER,
        "data": EITHER,
    }
    later = Training(1, 2, 2, steps=8, before_steps=("broadcast",) * 100)
    assert told(later) == right("tensor", "data")


@pytest.mark.parametrize("name", ["tensor", "data"])
def test_one_dimension_alone(name: str) -> None:
    """Of a job of two replicas or two tensor groups that know nothing of each other: nothing to compare with."""
    (only,) = found_in(Training(1, 2, 2), [name])
    assert (only.kind, only.why) == (EITHER, "no forward passes are known")
    assert name_of([only], {0}) == "tensor or data rank 0 of 2"


def test_about_as_many_calls_of_both() -> None:
    training = Training(1, 2, 2, micro_batches=1, in_pass=SUMS[:2], after_step=("all_reduce",) * 3)
    assert told(training) == {"tensor": EITHER, "data": EITHER}


def test_too_few_forward_passes() -> None:
    """One micro-batch through two stages has none that messages bound; one way alone may be anything."""
    for training in (Training(2, 1, 2, micro_batches=1), Training(2, 2, 1, backward=False, after_step=())):
        assert [d.kind for d in found_in(training)] == ["pipeline", EITHER]
    few = found_in(Training(2, 2, 1, steps=1, micro_batches=2))
    assert few[1].kind == EITHER and few[1].why == "only 2 forward passes are known"


def test_groups_that_have_called_nothing() -> None:
    assert told(Training(2, 2, 2, after_step=())) == right("pipeline", "tensor")
    assert told(Training(2, 1, 2, after_step=())) == right("pipeline")
    assert told(Training(1, 2, 2, steps=0)) == {}
