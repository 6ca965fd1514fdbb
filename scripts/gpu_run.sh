#!/usr/bin/env bash
# Builds what is missing, tests and measures on a machine with GPUs, in one go and within bounds: every step has a
# time limit, so that a hang costs a step and not the machine's time.
#
#   scripts/gpu_run.sh STEP...          e.g. probe times disorder python tests torch
#
# The library and its CUDA part may come along, built elsewhere: PREBUILT=folder with libstarling.so,
# libstarling_cuda.so and the programs of build/*/bench. Logs go to $OUT (default build/gpu_run).
set -u
cd "$(dirname "$0")/.."
ROOT=$PWD
OUT=${OUT:-$ROOT/build/gpu_run}
PREBUILT=${PREBUILT:-$ROOT/build/gpu/prebuilt}
SITE=${SITE:-/tmp/starling_site}
PYTHON=${PYTHON:-python3}
LIMIT=${LIMIT:-100}
mkdir -p "$OUT"
export CUDA_MODULE_LOADING=EAGER NCCL_NVLS_ENABLE=0 PYTHONUNBUFFERED=1 STARLING_TIMEOUT_S=${STARLING_TIMEOUT_S:-20}

bounded() { # name, then the command
  local name=$1
  shift
  local begin=$SECONDS
  timeout -k 5 "$LIMIT" "$@" >"$OUT/$name.log" 2>&1
  local status=$?
  echo "== $name: status $status, $((SECONDS - begin)) s"
  tail -n "${LINES_SHOWN:-25}" "$OUT/$name.log"
}

build_library() {
  [ -f "$PREBUILT/libstarling_cuda.so" ] && return
  cmake -S . -B build/gpu -G Ninja -DSTARLING_CUDA=ON -DSTARLING_BUILD_TESTS=OFF -DSTARLING_BUILD_BENCH=ON \
    -DSTARLING_PYTHON=OFF >"$OUT/cmake.log" && ninja -C build/gpu >"$OUT/build.log" || exit 1
  mkdir -p "$PREBUILT"
  cp build/gpu/libstarling.so build/gpu/libstarling_cuda.so build/gpu/bench/gpu.* "$PREBUILT"
}

# The package without pip: the extension is compiled for the Python that is here, against the library that is there.
build_package() {
  [ -f "$SITE/starling/_core.so" ] && return
  mkdir -p "$SITE/objects"
  cp -r python/starling "$SITE/"
  mkdir -p "$SITE/starling/lib" "$SITE/starling/bin"
  cp "$PREBUILT"/*.so "$SITE/starling/lib/"
  cp -r include "$SITE/starling/"
  cp -r src/torch "$SITE/starling/torch_src"
  local nanobind
  nanobind=$($PYTHON -c 'import nanobind, os; print(os.path.dirname(nanobind.__file__))')
  local includes="-I$nanobind/include -I$nanobind/ext/robin_map/include -I$($PYTHON -c 'import sysconfig; print(sysconfig.get_path("include"))')"
  printf '%s\n' "$nanobind/src/nb_combined.cpp" src/python/*.cc | xargs -P "$(nproc)" -I{} sh -c \
    'g++ -std=c++20 -O2 -fPIC -fvisibility=hidden -fno-strict-aliasing -DNDEBUG -Iinclude -Isrc '"$includes"' -c {} -o '"$SITE"'/objects/$(basename {}).o' \
    >"$OUT/package.log" 2>&1 || { tail -20 "$OUT/package.log"; exit 1; }
  g++ -shared -o "$SITE/starling/_core.so" "$SITE"/objects/*.o -L"$SITE/starling/lib" -lstarling "-Wl,-rpath,\$ORIGIN/lib" || exit 1
}

build_library
NCCL=$($PYTHON -c 'import nvidia.nccl; print(list(nvidia.nccl.__path__)[0] + "/lib")' 2>/dev/null)
export LD_LIBRARY_PATH=$PREBUILT:${NCCL:-}:${LD_LIBRARY_PATH:-}
export PYTHONPATH=$SITE:$ROOT/tests
nvidia-smi -L | tee "$OUT/gpus.log"
for step in "$@"; do
  case $step in
  probe) bounded probe "$PREBUILT/gpu.resident_probe" ;;
  queues) CUDA_DEVICE_MAX_CONNECTIONS=1 bounded queues "$PREBUILT/gpu.resident_probe" copies ;;
  priorities) bounded priorities "$PREBUILT/gpu.resident_probe" priorities ;;
  calls) bounded calls "$PREBUILT/gpu.resident_probe" calls ;;
  times) bounded times "$PREBUILT/gpu.stream_bench" times ;;
  disorder) for every in 0 1 4; do bounded "disorder$every" "$PREBUILT/gpu.stream_bench" disorder 4 200 $every; done ;;
  one_queue) CUDA_DEVICE_MAX_CONNECTIONS=1 bounded one_queue "$PREBUILT/gpu.stream_bench" disorder 4 50 1 ;;
  collectives) bounded collectives "$PREBUILT/gpu.collective_bench" 4 67108864 60 ;;
  package) build_package ;;
  python:*) build_package && bounded "python_$(basename "${step#python:}" .py)" $PYTHON -m pytest -x -q -p no:cacheprovider "${step#python:}" ;;
  script:*) # with arguments, separated by blanks
    words=(${step#script:})
    build_package && bounded "script_$(basename "${words[0]}" .py)_${words[2]:-all}" "$PYTHON" "${words[@]}"
    ;;
  *) echo "unknown step $step" && exit 2 ;;
  esac
done
