"""Goal: every kernel of the library is launched in the domain of remote traffic (src/machine/cuda/domain.h): one that
is not meets the others by atomics that do not reach it, and makes the program's kernels wait.

Method: look for launches in the tracked sources; the check is tried on bad examples first.
"""

import re

import pytest

from house.cpp_text import strip_noise
from house.sources import CPP_SUFFIXES, code_files, read

HOME = "src/machine/cuda/domain.h"
BY_THE_RUNTIME = re.compile(r"<<<|\bcudaLaunch\w*Kernel\w*")
BY_THE_DRIVER = re.compile(r"\blaunch_\(&")


def problems(name: str, text: str) -> list[str]:
    code = strip_noise(text)
    found = []
    if name != HOME and BY_THE_RUNTIME.search(code):
        found.append(f"{name}: launches a kernel itself; use launch_kernel() of {HOME}")
    if BY_THE_DRIVER.search(code) and not ("set_domain(" in code and "domain_attributes_" in code):
        found.append(f"{name}: launches by the driver without set_domain() of {HOME}")
    return found


@pytest.mark.parametrize(
    "text",
    [
        "kernel<<<1, 1, 0, stream>>>(word);",
        "cudaLaunchKernelEx(&config, kernel);",
        "launch_(&config, f, a, nullptr);",
    ],
)
def test_it_finds_launches_elsewhere(text: str) -> None:
    assert problems("src/machine/cuda/some.cu", text)


def test_kernels_are_launched_in_their_domain() -> None:
    names = [name for name in code_files(*CPP_SUFFIXES) if name.startswith("src/")]
    assert not [problem for name in names for problem in problems(name, read(name))]
