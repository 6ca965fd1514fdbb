"""Where programs come from: a file of Python, MSCCL XML, a plan's text, or the library's own by name."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_type_hints

from starling import ir
from starling.lang.errors import Place, ProgramError
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
    _check_options(source, function, arguments)
    if ranks is not None:
        arguments["ranks"] = ranks
    missing = [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty and parameter.name not in arguments
    ]
    if missing:
        raise SourceError(f"{source} needs {', '.join(missing)}; pass --ranks, or --option NAME=VALUE")
    try:
        with own_lines(source):
            made = function(**arguments)
    except ProgramError as error:
        if path.endswith(".py"):
            raise
        # The library's programs are right, so what they refuse is what they were asked for.
        raise SourceError(f"{source}: {str(error).removeprefix(f'{error.place}: ')}") from error
    if not isinstance(made, Program):
        raise SourceError(f"{source} gave {type(made).__name__}, not a Program")
    return made


# Of an option's values: what they are called, and which of Python's types pass for them.
_KINDS = {
    bool: ("True or False", (bool,)),
    int: ("a whole number", (int,)),
    float: ("a number", (int, float)),
}


def _check_options(source: str, function: Any, options: dict[str, Any]) -> None:
    """Their names, and their values where the function says, by a type or a default, of which kind they are."""
    parameters = inspect.signature(function).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for name, value in options.items():
        if name not in parameters:
            if takes_any:
                continue
            known = ", ".join(p for p in parameters if p != "ranks")
            raise SourceError(f"{source} has no option {name}; it has {known or 'none'}")
        kind = _kind_of(function, parameters[name])
        if kind is None:
            continue
        text, types = _KINDS[kind]
        if not isinstance(value, types) or (isinstance(value, bool) and kind is not bool):
            raise SourceError(f"option {name} of {source} is {value!r}; use {text}")


def _kind_of(function: Any, parameter: inspect.Parameter) -> type | None:
    """One of ``_KINDS``; None: not said, or another."""
    try:
        hint = get_type_hints(function).get(parameter.name)
    except Exception:  # the user's, which nobody has looked at so far
        hint = None
    kind = type(parameter.default) if hint is None else hint
    return kind if kind in _KINDS else None


def plan_of(
    source: str,
    ranks: int | None = None,
    options: dict[str, Any] | None = None,
    verify: bool = False,
    **compile_: Any,
) -> ir.Plan:
    """The same, and files of plan text or MSCCL XML: a plan. ``verify``: a program's is proved, and errors name its
    lines; files are not."""
    if is_plan(source):
        plan = _read_plan(Path(source))
        if ranks not in (None, plan.rank_count):
            raise SourceError(
                f"{source} is for {plan.rank_count} ranks, not {ranks}; use --ranks {plan.rank_count}"
            )
        return plan
    made = program_of(source, ranks, options)
    with own_lines(source):
        return made.compile(verify=verify, **compile_)


def is_plan(source: str) -> bool:
    """Whether it is a plan's text or MSCCL XML; there is no program behind it."""
    path = Path(source)
    return path.suffix == ".xml" or (path.is_file() and path.suffix != ".py")


def _read_plan(path: Path) -> ir.Plan:
    from starling.lang.msccl_blocks import XmlError
    from starling.lang.msccl_xml import read

    try:
        return read(path.read_bytes()) if path.suffix == ".xml" else ir.parse(path.read_text())
    except UnicodeDecodeError:
        raise ir.PlanTextError(f"{path} is neither a plan's text nor MSCCL XML") from None
    except ir.PlanTextError as error:
        raise ir.PlanTextError(f"{path}: {error}") from None
    except (ProgramError, XmlError) as error:
        raise XmlError(f"{path}: {error}") from error


@contextmanager
def own_lines(source: str) -> Iterator[None]:
    """What goes wrong in the user's file, not in the language's hands, is an error that names the line there. So is an
    end of the process: nothing would have been compiled, and nobody told."""
    path = source.partition(":")[0]
    try:
        yield
    except ProgramError:
        raise
    except SyntaxError as error:
        raise ProgramError(Place(error.filename or path, error.lineno or 0), error.msg) from error
    except (Exception, SystemExit) as error:
        own = Path(path).absolute()
        frames = [at for at in traceback.extract_tb(error.__traceback__) if Path(at.filename) == own]
        if not frames:
            raise
        raise ProgramError(
            Place(str(own), frames[-1].lineno or 0), f"{type(error).__name__}: {error}"
        ) from error


def _function(path: Path, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"_source_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise SourceError(f"there is no file {path}")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look for it there
    with own_lines(str(path)), _beside(path):
        spec.loader.exec_module(module)
    if not hasattr(module, name):
        raise SourceError(f"{path} has no function {name}; name one: {path}:FUNCTION")
    return getattr(module, name)


@contextmanager
def _beside(path: Path) -> Iterator[None]:
    """Modules beside the file are found, as with `python FILE`."""
    sys.path.insert(0, str(path.absolute().parent))
    try:
        yield
    finally:
        sys.path.pop(0)


def _built_in(source: str) -> Any:
    algorithms = importlib.import_module("starling.plans").ALGORITHMS
    collective, _, name = source.partition("/")
    if name in algorithms.get(collective, {}):
        return algorithms[collective][name]
    known = ", ".join(f"{c}/{n}" for c, makers in algorithms.items() for n in makers)
    raise SourceError(f"'{source}' is no file and none of {known}")
