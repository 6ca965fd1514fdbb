"""Where programs come from: a file of Python, MSCCL XML, a plan's text, or the library's own by name."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path
from typing import Any

from starling import ir
from starling.lang.program import Program


class SourceError(ValueError):
    """Nothing that can be compiled; the text says what was looked for."""


def program_of(source: str, ranks: int | None = None, options: dict[str, Any] | None = None) -> Program:
    """``all_reduce/ring`` (one of plans/), ``file.py`` (its function ``program``), or ``file.py:function``.

    ``ranks`` and ``options`` are the function's arguments.
    """
    path, _, name = source.partition(":")
    if path.endswith(".py"):
        function = _function(Path(path), name or "program")
    else:
        function = _built_in(source)
    arguments = dict(options or {})
    if ranks is not None:
        arguments["ranks"] = ranks
    missing = [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty and parameter.name not in arguments
    ]
    if missing:
        raise SourceError(f"{source} needs {', '.join(missing)}; pass --ranks, or --option NAME=VALUE")
    made = function(**arguments)
    if not isinstance(made, Program):
        raise SourceError(f"{source} gave {type(made).__name__}, not a Program")
    return made


def plan_of(
    source: str, ranks: int | None = None, options: dict[str, Any] | None = None, **compile_: Any
) -> ir.Plan:
    """The same, and files of plan text or MSCCL XML: a plan, not verified yet."""
    path = Path(source)
    if path.suffix == ".xml":
        from starling.lang.msccl_xml import read

        return read(path.read_text())
    if path.is_file() and path.suffix != ".py":
        return ir.parse(path.read_text())
    return program_of(source, ranks, options).compile(verify=False, **compile_)


def _function(path: Path, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise SourceError(f"there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, name):
        raise SourceError(f"{path} has no function {name}; name one: {path}:FUNCTION")
    return getattr(module, name)


def _built_in(source: str) -> Any:
    algorithms = importlib.import_module("starling.plans").ALGORITHMS
    collective, _, name = source.partition("/")
    if name in algorithms.get(collective, {}):
        return algorithms[collective][name]
    known = ", ".join(f"{c}/{n}" for c, makers in algorithms.items() for n in makers)
    raise SourceError(f"'{source}' is no file and none of {known}")
