"""Goal: good configurations are read, bad ones refused with the key and the line. Method: small files, each with one
thing wrong, and the text of the refusal."""

from __future__ import annotations

from pathlib import Path

import pytest

from starling.deadlock import Configuration, ConfigurationError, free_groups, load

YAML = """\
model: synchronization
grouping:
  policy: 3d
  tensor: 4
  data: 2
  pipeline: 4
  tensor_collectives: 3
  data_collectives: 5
disorder_probability: 4e-3
synchronization_probability: 0.004
rounds: 100
"""

JSON = """\
{
\t"model": "single_queue",
\t"grouping": {"policy": "free", "gpus": 3, "groups": [
\t\t{"gpus": [0, 1], "collectives": 4},
\t\t{"gpus": [1, 2], "collectives": 4}
\t]},
\t"disorder_probability": 1e-6
}
"""


def _write(folder: Path, text: str, name: str = "study.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_yaml_and_json_are_read(tmp_path: Path) -> None:
    three_d = load(_write(tmp_path, YAML))
    assert (three_d.gpus, len(three_d.groups), three_d.shape) == (32, 24, "3D (4,2,4)")
    assert (three_d.disorder_probability, three_d.rounds) == (0.004, 100)
    assert three_d.build().launches == 32 * 8
    free = load(_write(tmp_path, JSON, "study.json"))
    assert free.groups == [([0, 1], 4), ([1, 2], 4)]
    assert free.disorder_probability == 1e-6


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("model: synchronization", "model: streams", "line 1: model is 'streams'"),
        ("4e-3", "1.5", "line 9: disorder_probability is 1.5; a probability is between 0 and 1"),
        ("4e-3", "often", "line 9: disorder_probability is 'often'"),
        ("0.004", "1", "line 10: synchronization_probability is 1"),
        ("rounds: 100", "rounds: 0", "line 11: rounds is 0"),
        ("rounds: 100", "round: 100", "line 11: round is not a key"),
        ("  data: 2\n", "", "grouping.data is missing"),
        ("policy: 3d", "policy: ring", "line 3: grouping.policy is 'ring'"),
        ("disorder_prob", "disord_prob", "is missing; line 9 has disord_probability"),
        ("tensor: 4", "tensor: [", "line"),
        ("rounds: 100", "model: single_queue", "line 11: model is given twice"),
    ],
)
def test_bad_yaml_is_refused_with_key_and_line(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert old in YAML
    with pytest.raises(ConfigurationError) as refusal:
        load(_write(tmp_path, YAML.replace(old, new)))
    assert expected in str(refusal.value)
    assert "study.yaml, line " in str(refusal.value)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('"gpus": 3', '"gpus": 4', "line 3: grouping.groups leaves GPU 3 in no group"),
        ("[1, 2]", "[1, 3]", "line 5: grouping.groups[1].gpus[1] is 3"),
        ("[1, 2]", "[1, 1, 2]", "line 5: grouping.groups[1].gpus[1] is 1, which the group has already"),
        ("[1, 2]", "[]", "line 5: grouping.groups[1].gpus is empty"),
        ('"collectives": 4},', '"collectives": 0},', "line 4: grouping.groups[0].collectives is 0"),
        ("1e-6\n", "1e-6,\n", "line 8"),
    ],
)
def test_bad_json_is_refused_with_key_and_line(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert old in JSON
    with pytest.raises(ConfigurationError) as refusal:
        load(_write(tmp_path, JSON.replace(old, new), "study.json"))
    assert expected in str(refusal.value)


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        load(tmp_path / "missing.yaml")
    with pytest.raises(ConfigurationError, match="line 1: the file is empty"):
        load(_write(tmp_path, ""))


def test_the_engine_refuses_in_the_same_way() -> None:
    with pytest.raises(ConfigurationError, match="GPU 2 is in no group"):
        Configuration(groups=[([0, 1], 3)], gpus=3).build()


@pytest.mark.parametrize(("gpus", "launches"), [(64, 92_800), (128, 92_800 + 2 * 25_600)])
def test_the_papers_free_groups(gpus: int, launches: int) -> None:
    groups = free_groups(gpus)
    assert [len(members) for members, _ in groups] == [3 + gpus // 64 * 2 - 2] * 28 + [
        8 + gpus // 64 * 2 - 2
    ] * 4
    assert sum(collectives == 400 for _, collectives in groups) == 16
    of_gpu = [sum(gpu in members for members, _ in groups) for gpu in range(gpus)]
    assert (min(of_gpu), max(of_gpu)) == (1, 5)
    assert Configuration(groups=groups, gpus=gpus).build().launches == launches
