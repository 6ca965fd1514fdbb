"""What a study is asked for, from a JSON or YAML file or from flags; refused with the key and the line at fault."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from . import engine

GroupList = list[tuple[list[int], int]]  # members and collectives of each group

RULES = ("single_queue", "synchronization")
ORDERS = ("interleaved", "concatenated")
DECISIONS = ("both", "exact", "released")
SAMPLINGS = ("plain", "planted")


# More than any machine has, and few enough for memory and for the engine's integers.
MOST_GPUS = 1 << 20
MOST_COLLECTIVES = 1 << 20  # of a group
MOST_LAUNCHES = 1 << 28  # of all GPUs
MOST_ROUNDS = 1 << 50
MOST_SEED = (1 << 63) - 1
MOST_THREADS = 1024


class ConfigurationError(ValueError):
    """A setting that the study does not take; the text names the key and, from a file, the line."""


@dataclass
class Configuration:
    """One model and how to sample it. Probabilities are per element passed over and per turn."""

    groups: GroupList
    gpus: int
    model: str = "single_queue"
    order: str = "interleaved"
    disorder_probability: float = 0.0
    synchronization_probability: float = 0.0
    rounds: int = 32_000
    seed: int = 1
    threads: int = 0
    decision: str = "both"
    sampling: str = "plain"
    shape: str = field(default="free")  # for people: "3D (4,4,4)", ...

    def build(self) -> engine.Model:
        """The engine's model. What the engine refuses becomes a ConfigurationError."""
        launches = sum(len(gpus) * collectives for gpus, collectives in self.groups)
        if launches > MOST_LAUNCHES:
            raise ConfigurationError(
                f"the groups have {launches:,} launches in all; at most {MOST_LAUNCHES:,} are studied"
            )
        try:
            return engine.Model(
                rule=getattr(engine.Rule, self.model),
                order=getattr(engine.Order, self.order),
                gpus=self.gpus,
                groups=[engine.Group(gpus, collectives) for gpus, collectives in self.groups],
                disorder_probability=self.disorder_probability,
                synchronization_probability=self.synchronization_probability,
            )
        except (RuntimeError, ValueError) as error:
            raise ConfigurationError(str(error).split(" [invalid_argument")[0]) from error


def three_d(
    tensor: int, data: int, pipeline: int, tensor_collectives: int, data_collectives: int
) -> GroupList:
    gpus = tensor * data * pipeline
    if gpus > MOST_GPUS:
        raise ConfigurationError(
            f"{tensor} × {data} × {pipeline} are {gpus:,} GPUs; the most is {MOST_GPUS:,}"
        )
    if max(tensor_collectives, data_collectives) > MOST_COLLECTIVES:
        raise ConfigurationError(f"the most collectives of a group is {MOST_COLLECTIVES:,}")
    groups = engine.three_d_groups(tensor, data, pipeline, tensor_collectives, data_collectives)
    return [(list(group.gpus), int(group.collectives)) for group in groups]


def load(path: Path) -> Configuration:
    """Reads a configuration file; JSON is taken as the part of YAML that it is."""
    try:
        text = path.read_text()
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: it is no text ({error})") from error
    try:
        return _parse(path, text)
    except RecursionError as error:
        raise ConfigurationError(f"{path}: lists or mappings stand too deep inside of others") from error


def _parse(path: Path, text: str) -> Configuration:
    if path.suffix == ".json":
        try:
            json.loads(text)
        except json.JSONDecodeError as error:
            raise ConfigurationError(f"{path}, line {error.lineno}: {error.msg}") from error
        text = text.replace("\t", " ")  # JSON may indent with tabs, YAML may not
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigurationError(f"{path}, line {line}: {error.problem}") from error
    if root is None:
        raise ConfigurationError(f"{path}, line 1: the file is empty")
    return _configuration(_Reader(str(path), "", root))


class _Reader:
    """A node of the file that knows its name and line, and what of it was asked for."""

    def __init__(self, path: str, key: str, node: yaml.Node) -> None:
        self.path, self.key, self.node = path, key, node
        self._items: dict[str, yaml.Node] = {}
        self._key_lines: dict[str, int] = {}
        self._used: set[str] = set()

    @property
    def line(self) -> int:
        return int(self.node.start_mark.line) + 1

    def fail(self, problem: str) -> ConfigurationError:
        return ConfigurationError(f"{self.path}, line {self.line}: {self.key or 'the file'} {problem}")

    def open_mapping(self) -> _Reader:
        if not isinstance(self.node, yaml.MappingNode):
            raise self.fail("must be a mapping of keys to values")
        for key, value in self.node.value:
            if key.value in self._items:
                raise ConfigurationError(
                    f"{self.path}, line {key.start_mark.line + 1}: {self._name(key.value)} is given twice"
                )
            self._items[key.value] = value
            self._key_lines[key.value] = key.start_mark.line + 1
        return self

    def _name(self, key: str) -> str:
        return f"{self.key}.{key}" if self.key else key

    def child(self, key: str) -> _Reader:
        if key not in self._items:
            text = f"{self.path}, line {self.line}: {self._name(key)} is missing"
            for near in difflib.get_close_matches(key, self._items.keys() - self._used, 1, 0.8):
                text += f"; line {self._key_lines[near]} has {self._name(near)}"
            raise ConfigurationError(text)
        self._used.add(key)
        return _Reader(self.path, self._name(key), self._items[key])

    def optional(self, key: str, default: Any, read: Callable[[_Reader], Any]) -> Any:
        return read(self.child(key)) if key in self._items else default

    def close(self) -> None:
        for key in self._items.keys() - self._used:
            raise ConfigurationError(
                f"{self.path}, line {self._key_lines[key]}: {self._name(key)} is not a key that is known here"
            )

    def items(self) -> list[_Reader]:
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.fail("must be a list")
        return [_Reader(self.path, f"{self.key}[{i}]", node) for i, node in enumerate(self.node.value)]

    def text(self) -> str:
        if not isinstance(self.node, yaml.ScalarNode):
            raise self.fail("must be a single value")
        return str(self.node.value)

    def one_of(self, choices: tuple[str, ...]) -> str:
        value = self.text()
        if value not in choices:
            raise self.fail(f"is {value!r}; it must be one of {', '.join(choices)}")
        return value

    def whole(self, least: int, most: int) -> int:
        try:
            value = int(self.text())
        except ValueError:
            raise self.fail(f"is {self.text()!r}; it must be a whole number") from None
        if value < least:
            raise self.fail(f"is {value}; it must be at least {least}")
        if value > most:
            raise self.fail(f"is {value}; it must be at most {most}")
        return value

    def probability(self) -> float:
        try:
            value = float(self.text())
        except ValueError:
            raise self.fail(f"is {self.text()!r}; it must be a number") from None
        if not 0 <= value <= 1:
            raise self.fail(f"is {value}; a probability is between 0 and 1")
        return value


def _configuration(root: _Reader) -> Configuration:
    root.open_mapping()
    grouping = root.child("grouping")
    groups, gpus, shape = _grouping(grouping)
    configuration = Configuration(
        groups=groups,
        gpus=gpus,
        shape=shape,
        model=root.child("model").one_of(RULES),
        order=root.optional("order", "interleaved", lambda reader: reader.one_of(ORDERS)),
        disorder_probability=root.child("disorder_probability").probability(),
        synchronization_probability=root.optional(
            "synchronization_probability", 0.0, lambda reader: reader.probability()
        ),
        rounds=root.optional("rounds", 32_000, lambda reader: reader.whole(1, MOST_ROUNDS)),
        seed=root.optional("seed", 1, lambda reader: reader.whole(0, MOST_SEED)),
        threads=root.optional("threads", 0, lambda reader: reader.whole(0, MOST_THREADS)),
        decision=root.optional("decision", "both", lambda reader: reader.one_of(DECISIONS)),
        sampling=root.optional("sampling", "plain", lambda reader: reader.one_of(SAMPLINGS)),
    )
    root.close()
    if configuration.model == "synchronization" and configuration.synchronization_probability == 1:
        raise root.child("synchronization_probability").fail("is 1: a GPU would never launch anything")
    return configuration


def _grouping(grouping: _Reader) -> tuple[GroupList, int, str]:
    grouping.open_mapping()
    policy = grouping.child("policy").one_of(("3d", "free"))
    if policy == "3d":
        sizes = [grouping.child(key).whole(1, MOST_GPUS) for key in ("tensor", "data", "pipeline")]
        collectives = [
            grouping.child(key).whole(1, MOST_COLLECTIVES)
            for key in ("tensor_collectives", "data_collectives")
        ]
        grouping.close()
        if sizes[0] * sizes[1] * sizes[2] > MOST_GPUS:
            raise grouping.fail(f"has tensor × data × pipeline GPUs; they must be at most {MOST_GPUS}")
        shape = "3D ({},{},{})".format(*sizes)
        return three_d(*sizes, *collectives), sizes[0] * sizes[1] * sizes[2], shape
    gpus = grouping.child("gpus").whole(1, MOST_GPUS)
    groups: GroupList = []
    seen: set[int] = set()
    for group in grouping.child("groups").items():
        group.open_mapping()
        members: list[int] = []
        for reader in group.child("gpus").items():
            gpu = reader.whole(0, MOST_GPUS)
            if gpu >= gpus:
                raise reader.fail(f"is {gpu}; GPUs are numbered from 0 to {gpus - 1}")
            if gpu in members:
                raise reader.fail(f"is {gpu}, which the group has already")
            members.append(gpu)
        if not members:
            raise group.child("gpus").fail("is empty; a group has at least one GPU")
        groups.append((members, group.child("collectives").whole(1, MOST_COLLECTIVES)))
        group.close()
        seen.update(members)
    grouping.close()
    if not groups:
        raise grouping.child("groups").fail("is empty; give at least one group")
    missing = sorted(set(range(gpus)) - seen)
    if missing:
        raise grouping.child("groups").fail(f"leaves GPU {missing[0]} in no group")
    return groups, gpus, f"free {len(groups)} × {gpus}"
