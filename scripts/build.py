"""Builds Starling into build/dev and installs it into this Python: `pip install .` with progress and a log.

Works without a network: everything it needs (cmake, ninja, nanobind, scikit-build-core) is there after setup.
"""

import argparse
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STEP = re.compile(r"^\s*\[(\d+)/(\d+)\] (.*)")


def pip_command(build_dir: str, defines: list[str]) -> list[str]:
    command = [sys.executable, "-m", "pip", "install", "--verbose", "--no-build-isolation", "--no-deps"]
    command += ["--disable-pip-version-check", "--config-settings", f"build-dir={build_dir}"]
    for define in defines:
        command += ["--config-settings", f"cmake.define.{define}"]
    return [*command, "."]


def run_with_progress(command: list[str], log_path: Path) -> int:
    """Shows one moving line on a terminal, a line per tenth elsewhere; everything goes to the log."""
    shown_tenth = -1
    on_terminal = sys.stdout.isatty()
    environment = dict(os.environ, PYTHONUNBUFFERED="1")
    environment.setdefault("CMAKE_BUILD_PARALLEL_LEVEL", str(os.cpu_count() or 1))
    with log_path.open("w", buffering=1) as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert process.stdout is not None
        for line in process.stdout:
            log.write(line)
            step = STEP.match(line)
            if not step:
                continue
            done, total, what = int(step[1]), int(step[2]), step[3]
            if on_terminal:
                print(f"\r\033[K[build] {done}/{total} {what[:90]}", end="", flush=True)
            elif total > 1 and done * 10 // total != shown_tenth:
                shown_tenth = done * 10 // total
                print(f"[build] {done}/{total}", flush=True)
        if on_terminal:
            print("\r\033[K", end="")
        return process.wait()


def has_cuda_part() -> bool:
    return (Path(sysconfig.get_path("platlib")) / "starling/lib/libstarling_cuda.so").exists()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build-dir", default="build/dev")
    parser.add_argument("--define", action="append", default=[], help="CMake definition, NAME=VALUE")
    arguments = parser.parse_args()

    (ROOT / "build").mkdir(exist_ok=True)
    log_path = ROOT / "build" / f"{Path(arguments.build_dir).name}.log"
    print(f"[build] compiling into {arguments.build_dir} (log: {log_path.relative_to(ROOT)})", flush=True)
    had_cuda = has_cuda_part()
    status = run_with_progress(pip_command(arguments.build_dir, arguments.define), log_path)
    if status != 0:
        lines = log_path.read_text().splitlines()
        first = next(
            (i for i, line in enumerate(lines) if "FAILED:" in line or "CMake Error" in line), len(lines) - 40
        )
        print("\n".join(lines[max(first, 0) : max(first, 0) + 60]), file=sys.stderr)
        print(f"[build] failed; the whole log is {log_path.relative_to(ROOT)}", file=sys.stderr)
        return 1
    print("[build] installed", flush=True)
    if had_cuda and not has_cuda_part():
        print("[build] without the CUDA part that was there; `make build-gpu` brings it back", flush=True)
    # So that no test and no demo has to, within its own bounds.
    return subprocess.run([sys.executable, "-m", "starling.cli", "torch", "build"], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
