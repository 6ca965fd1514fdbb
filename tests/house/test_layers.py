"""Goal: dependencies point up the list of docs/ARCHITECTURE.md only, and only base/env.cc reads the environment.

Method: read every #include and every getenv of the tracked sources; the checks are tried on bad examples first.
"""

import re
from pathlib import Path

import pytest

from house.cpp_text import strip_noise
from house.sources import CPP_SUFFIXES, ROOT, code_files, read

# A folder may include itself and those before it. The last ones stand side by side: none includes another.
LAYERS = ["base", "wire", "plan", "device", "machine", "monitor", "link", "comm"]
TOP_LAYERS = ["study", "torch", "python"]
BOUND = {"python": ["study"]}  # the bindings translate the study's types
CUDA_HOMES = ("src/machine/cuda/", "src/link/", "tests/gpu/", "bench/")
ENVIRONMENT_READER = "src/base/env.cc"
# Failover itself: files of src/link outside its folders. The same code runs over every link and under exploration, so
# it knows no link, no thread and no clock.
PURE = re.compile(r"src/link/[^/]+$")
IMPURE_HEADERS = re.compile(
    r"chrono|thread|mutex|atomic|condition_variable|future|time\.h|ctime|pthread\.h|(?:sys|net|infiniband)/.*"
)

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.M)


# Compiled alone, on the user's machine, beside headers of PyTorch that are named "torch/...": its files include
# each other by their plain names.
FLAT = {"torch"}


def include_problems(name: str, text: str) -> list[str]:
    """What is wrong with the includes of the file `name` (a path from the root)."""
    parts = Path(name).parts
    problems = []
    for bracket, target in INCLUDE.findall(text):
        folder = target.split("/")[0]
        if bracket == "<":
            continue
        if parts[0] == "include":
            problems.append(f'{name}: a public header includes "{target}"; only <...> is allowed there')
        elif parts[0] == "src":
            layer = parts[1]
            allowed = LAYERS[: LAYERS.index(layer) + 1] if layer in LAYERS else [*LAYERS, layer]
            allowed = allowed + BOUND.get(layer, [])
            if "/" not in target and layer in FLAT and (ROOT / "src" / layer / target).is_file():
                continue
            if "/" not in target:
                problems.append(f'{name}: "{target}" must be named from src/ ("{layer}/{target}")')
            elif folder not in allowed:
                problems.append(
                    f'{name}: layer {layer} includes "{target}"; it may include {", ".join(allowed)}'
                )
            elif not (ROOT / "src" / target).is_file():
                problems.append(f'{name}: "{target}" does not exist')
    return problems


def purity_problems(name: str, text: str) -> list[str]:
    if not PURE.match(name):
        return []
    return [
        f"{name}: failover may not include {target}; time and transport come through link/link.h"
        for bracket, target in INCLUDE.findall(text)
        if (bracket == "<" and IMPURE_HEADERS.fullmatch(target)) or re.match(r"link/[^/]+/", target)
    ]


def environment_problems(name: str, text: str) -> list[str]:
    if name == ENVIRONMENT_READER or not re.search(r"\b(?:secure_)?getenv\b|\benviron\b", strip_noise(text)):
        return []
    return [f"{name}: reads the environment; add a row to the table in {ENVIRONMENT_READER} instead"]


def cuda_home_problems(name: str) -> list[str]:
    if name.endswith((".cu", ".cuh")) and not name.startswith(CUDA_HOMES):
        return [f"{name}: CUDA files live in {', '.join(CUDA_HOMES)} only"]
    return []


def test_includes_point_up_only() -> None:
    problems = [p for name in code_files(*CPP_SUFFIXES) for p in include_problems(name, read(name))]
    assert not problems, "\n".join(problems)


def test_every_layer_is_known() -> None:
    folders = {Path(name).parts[1] for name in code_files(*CPP_SUFFIXES) if name.startswith("src/")}
    assert folders <= {*LAYERS, *TOP_LAYERS}, f"unknown layers: {folders - {*LAYERS, *TOP_LAYERS}}"


def test_failover_is_pure() -> None:
    names = [name for name in code_files(*CPP_SUFFIXES) if PURE.match(name)]
    assert names
    problems = [p for name in names for p in purity_problems(name, read(name))]
    assert not problems, "\n".join(problems)


def test_only_base_env_reads_the_environment() -> None:
    sources = [name for name in code_files(*CPP_SUFFIXES) if name.startswith(("src/", "include/"))]
    problems = [p for name in sources for p in environment_problems(name, read(name))]
    assert not problems, "\n".join(problems)


def test_cuda_files_are_at_home() -> None:
    problems = [p for name in code_files(".cu", ".cuh") for p in cuda_home_problems(name)]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("src/wire/plan.h", '#include "comm/communicator.h"\n'),
        ("src/device/interpreter.h", '#  include "machine/cpu/machine.h"\n'),
        ("src/study/deadlock.cc", '#include "torch/backend.h"\n'),
        ("src/base/error.cc", '#include "error.h"\n'),
        ("src/base/error.cc", '#include "base/nowhere.h"\n'),
        ("include/starling/starling.h", '#include "base/error.h"\n'),
    ],
)
def test_a_wrong_include_is_seen(name: str, text: str) -> None:
    assert len(include_problems(name, text)) == 1


def test_right_includes_pass() -> None:
    text = (
        '#include <starling/starling.h>\n#include <vector>\n#include "base/error.h"\n#include "base/log.h"\n'
    )
    assert include_problems("src/comm/communicator.cc", text) == []


def test_a_hidden_environment_read_is_seen() -> None:
    text = 'int ranks() { return atoi(std::getenv("WORLD_SIZE")); }\n'
    assert environment_problems("src/comm/bootstrap.cc", text)
    assert not environment_problems(ENVIRONMENT_READER, text)
    assert not environment_problems("src/comm/bootstrap.cc", "// getenv is for base/env alone\n")


def test_an_impure_failover_is_seen() -> None:
    assert purity_problems("src/link/sender.h", "#include <chrono>\n")
    assert purity_problems("src/link/sender.h", "#include <sys/socket.h>\n")
    assert purity_problems("src/link/receiver.h", '#include "link/sim/network.h"\n')
    assert not purity_problems("src/link/tcp/proxy.cc", "#include <thread>\n")
    assert not purity_problems("src/link/sender.h", '#include <algorithm>\n#include "link/flow.h"\n')


def test_a_stray_cuda_file_is_seen() -> None:
    assert cuda_home_problems("src/comm/kernel.cu")
    assert not cuda_home_problems("src/machine/cuda/kernel.cu")
