#!/usr/bin/env bash
# Says how large the start kernels and what they call are and how often they go to local memory, from their PTX: needs nvcc and half a
# minute, no GPU. The units that a bound program keeps have to stay in registers, and one more array in a kernel can put
# all of them into local memory (docs/design/0021-packets-in-lines.md). Exit code 1: it is more often than it was.
set -eu
cd "$(dirname "$0")/.."
MOST=${MOST:-18} # loads: operands of more than four sources, and of types that are seldom summed
ptx=$(mktemp --suffix=.ptx)
trap 'rm -f "$ptx"' EXIT
"${CUDACXX:-nvcc}" -O3 -DNDEBUG -arch=compute_90 --extended-lambda --expt-relaxed-constexpr --fmad=false -std=c++20 \
  -rdc=true -Iinclude -Isrc --ptx src/machine/cuda/start.cu -o "$ptx"
awk -v most="$MOST" '
  /\.(entry|func)/ { at = 0 }
  /^ *(\.visible |\.weak )?\.(entry|func)/ && !/;/ {
    at = ++kernels; name[at] = $0
    sub(/.*_GLOBAL__N__[0-9a-f_]*start_cu_[0-9a-f]*/, "", name[at]); sub(/^.*\.func *(\([^)]*\) *)?/, "", name[at])
  }
  at { ++lines[at] }
  /ld\.local/ { ++loads[at] }
  /st\.local/ { ++stores[at] }
  END {
    for (k = 1; k <= kernels; ++k) {
      if (lines[k] < 40) continue  # a declaration
      printf "%-110s %7d lines %5d loads %5d stores\n", name[k], lines[k], loads[k], stores[k]
      if (loads[k] > most) bad = 1
    }
    if (bad) print "more than " most " loads from local memory: which array, or which call that takes an address, came in last?"
    exit bad
  }' "$ptx"
