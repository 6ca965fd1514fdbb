#!/usr/bin/env bash
# tests/gpu on two GPUs and on one, on a machine of four: two programs beside each other, each on GPUs of its own,
# in some nine minutes. What it times says little. The results: OUT/pair_a, OUT/pair_b and OUT/one.
#
#   scripts/gpu_pairs.sh
set -u
cd "$(dirname "$0")/.."
OUT=${OUT:-$PWD/build/gpu_run}
mkdir -p "$OUT"
LINES_SHOWN=5 bash scripts/gpu_run.sh package >"$OUT/package.txt" 2>&1 || { tail "$OUT/package.txt"; exit 1; }

run() { # GPUs, how many, folder, seconds, steps
  CUDA_VISIBLE_DEVICES=$1 GPUS=$2 OUT=$OUT/$3 LIMIT=$4 LINES_SHOWN=8 bash scripts/gpu_run.sh "${@:5}" >>"$OUT/$3.txt" 2>&1
}
{
  run 0,1 2 pair_a 60 tests
  run 0,1 2 pair_a 110 python:tests/gpu/test_plans.py,-k,2
} &
{
  run 2,3 2 pair_b 200 python:tests/gpu/test_ipc.py
  run 2,3 2 pair_b 80 python:tests/gpu/test_together.py
  OPERATIONS=1000000 CASES=25 run 2,3 2 pair_b 100 many sanitizer
  run 2 1 one 60 python:tests/gpu/test_conformance.py python:tests/gpu/test_programs.py
} &
wait
failed=0
for log in "$OUT"/pair_a/summary.log "$OUT"/pair_b/summary.log "$OUT"/one/summary.log; do
  echo "# $log"
  grep -h "^==\|passed\|failed\|SUMMARY\|are right" "$log"
  ! grep -q "^==.*status [1-9]" "$log" || failed=1
done
exit $failed
