#!/usr/bin/env bash
# Tunes the cpu machine with two and four ranks, threads and processes, and holds the table, and the library's choice,
# against every plan that can be named: bench/results/choice_table.txt and choice.json, or those in the folder OUT.
# Leave the machine alone meanwhile. Arguments go to both commands (`-C all_reduce` makes it short).
#
#   bench/choice_table.sh                       some fifteen minutes
#   RANKS=4 AS=processes bench/choice_table.sh  a part of it
set -eu
cd "$(dirname "$0")/.."
OUT=${OUT:-bench/results}
STARLING="${PYTHON:-.venv/bin/python} -m starling.cli"
LARGEST=$((1 << 21))
for ranks in ${RANKS:-2 4}; do
  [ $ranks = 2 ] || LARGEST=$((1 << 18)) # more ranks than cores
  sizes=$(for ((size = 64; size <= LARGEST; size *= 8)); do printf '%d,' $size; done)
  for as in ${AS:-threads processes}; do
    $STARLING tune -n $ranks --as $as --factor 8 --end $LARGEST --slice-ms 2 --launches 3 -o "$OUT/choice_table.txt" "$@" |
      tail -n 1
    $STARLING bench choice -n $ranks --as $as --sizes "${sizes%,}" --table "$OUT/choice_table.txt" --launches 3 --finals 12 \
      --json "$OUT/choice.json" "$@"
  done
done
