#!/usr/bin/env bash
# Format and types of everything that git tracks: clang-format, ruff, mypy. `--fix` repairs what a tool can repair.
set -uo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
fix=${1:-}
status=0

say() { printf '[lint] %s\n' "$*"; }
tracked() { git ls-files -z -- "$@" | while IFS= read -r -d '' file; do [[ -f $file ]] && printf '%s\0' "$file"; done; }

say "clang-format"
clang_format="$("$python" -c 'import sysconfig; print(sysconfig.get_path("scripts"))')/clang-format"
if [[ $fix == --fix ]]; then cpp=(-i); else cpp=(--dry-run -Werror); fi
tracked '*.cc' '*.h' '*.cu' '*.cuh' | xargs -0 -r "$clang_format" "${cpp[@]}" || status=1

say "ruff"
if [[ $fix == --fix ]]; then
  tracked '*.py' | xargs -0 -r "$python" -m ruff check --quiet --fix || status=1
  tracked '*.py' | xargs -0 -r "$python" -m ruff format --quiet || status=1
else
  tracked '*.py' | xargs -0 -r "$python" -m ruff check --quiet || status=1
  tracked '*.py' | xargs -0 -r "$python" -m ruff format --quiet --check || status=1
fi

say "mypy"
MYPYPATH=python "$python" -m mypy --no-error-summary -p starling || status=1
"$python" -m mypy --no-error-summary scripts/*.py || status=1

if [[ $status == 0 ]]; then say "clean"; else say "not clean (make format repairs the format)"; fi
exit $status
