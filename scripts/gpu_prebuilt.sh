#!/usr/bin/env bash
# Compiles for GPUs where there are none, and packs what scripts/gpu_run.sh needs of it: build/gpu/prebuilt, some
# 17 MB, which goes with the sources to a machine that has GPUs. Cold, two cores take twelve minutes.
#
#   scripts/gpu_prebuilt.sh [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."
to=${1:-build/gpu/prebuilt}
cmake -S . -B build/gpu -G Ninja -DSTARLING_CUDA=ON -DSTARLING_BUILD_TESTS=OFF -DSTARLING_BUILD_BENCH=ON -DSTARLING_PYTHON=OFF
ninja -C build/gpu
mkdir -p "$to"
rm -f "$to"/libstarling_cuda.so "$to"/gpu.*
strip -o "$to/libstarling.so" build/gpu/libstarling.so
for program in build/gpu/bench/gpu.*; do strip -o "$to/$(basename "$program")" "$program"; done
strip -o "$to/cuda.so" build/gpu/libstarling_cuda.so
python3 - "$to" <<'PY'
import lzma, pathlib, sys

library = pathlib.Path(sys.argv[1], "cuda.so")
pathlib.Path(sys.argv[1], "libstarling_cuda.so.xz").write_bytes(lzma.compress(library.read_bytes(), preset=3))
library.unlink()
PY
du -sh "$to"
