#!/usr/bin/env bash
# Builds the C++ tests with ThreadSanitizer and with AddressSanitizer + UBSan, and runs those labelled `sanitize`.
# Arguments: which to run, `tsan` and/or `asan`; both by default. `--build`: builds, and runs nothing. Two at once build
# one after the other.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}

# With much address randomization ThreadSanitizer finds its shadow memory taken: switch it off where that is allowed.
fixed_addresses=()
if setarch "$(uname -m)" -R true 2>/dev/null; then
  fixed_addresses=(setarch "$(uname -m)" -R)
fi

build_only=false
if [[ ${1:-} == --build ]]; then
  build_only=true
  shift
fi

build() { # build NAME SANITIZERS
  local name=$1 sanitizers=$2
  printf '[sanitize] %s: building into build/%s\n' "$sanitizers" "$name"
  cmake -S . -B "build/$name" -G Ninja -DSTARLING_SANITIZE="$sanitizers" -DSTARLING_CUDA=OFF >"build/$name.log" 2>&1 ||
    { tail -n 40 "build/$name.log" >&2; return 1; }
  cmake --build "build/$name" --target sanitized_tests --parallel "$(nproc)" >>"build/$name.log" 2>&1 ||
    { grep -A 30 -m 1 'FAILED:' "build/$name.log" >&2; return 1; }
}

run() { # run NAME SANITIZERS
  local name=$1
  # The lock is the subshell's: whoever comes second finds everything built.
  (flock 9 && build "$@") 9>"build/$name.lock" || return 1
  if $build_only; then return; fi
  TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1:${TSAN_OPTIONS:-}" \
    ASAN_OPTIONS="detect_leaks=1:strict_string_checks=1:${ASAN_OPTIONS:-}" \
    UBSAN_OPTIONS="print_stacktrace=1:${UBSAN_OPTIONS:-}" \
    "${fixed_addresses[@]}" "$python" scripts/run_tests.py --only cpp --label sanitize --build-dir "build/$name" \
    --name "$name"
}

mkdir -p build
status=0
for which in "${@:-both}"; do
  case $which in
    tsan) run tsan thread || status=1 ;;
    asan) run asan address,undefined || status=1 ;;
    both)
      run tsan thread || status=1
      run asan address,undefined || status=1
      ;;
    *)
      echo "unknown sanitizer '$which': tsan or asan" >&2
      exit 2
      ;;
  esac
done
exit $status
