#!/usr/bin/env bash
# Builds what is missing, tests and measures on a machine with GPUs, in one go and within bounds: every step has a
# time limit, so that a hang costs a step and not the machine's time.
#
#   scripts/gpu_run.sh STEP... [OUT_DIR]       an argument with a slash and no colon is the folder of the results
#
#   all          tests/gpu whole, what `make test-gpu` runs, or FILES=its files by the names' ends, within LIMIT seconds a file, JOBS=n files
#                at a time on the same GPUs; with four GPUs first what is of four ranks (STAGE=four: no more than that), then the rest
#                (STAGE=two: that alone) in two halves, each on two GPUs of its own
#   tests        tests/gpu, without what follows
#   programs     DFCCL §6.1's programs in all situations of §2.3, beside NCCL, which hangs for HANG_S, in PROGRAMS_S (gpu_disorder_N.json)
#   depleted     few of their iterations on GPUs that others fill, and in one order (gpu_depleted_N.json)
#   controls     depleted resources in one order, NCCL too: what hangs there does not hang of disorder (gpu_controls_N.json)
#   bench        all collectives, 8 B to 2 GB (gpu_collectives_N.json); bench:full the same, bench:quick five sizes
#   bench:modes  the same beside NCCL's better modes, and both in CUDA graphs (gpu_modes_N.json); MODES=those of NCCL, LAST=256M,
#                COLLECTIVES=all
#   overlap      computation beside collectives (gpu_overlap_N.json, .png)
#   overlap:sm_free  the matrix product beside copies without multiprocessors (gpu_overlap_sm_free_N.json)
#   overheads    DFCCL §6.2's overheads (gpu_overheads.json)
#   holds        who holds a stream: gates, wait values, doorbells (gpu_holds_{gate,wait,doorbell}_N.json), all_reduce to 8 MB
#   links        what the links give to each way (bench/gpu/link_probe.cu: gpu_links_N.txt); WAYS=words of the names of some
#   named        algorithms by name beside NCCL, out of place (gpu_named_COLLECTIVE_ALGORITHM_BLOCKS_N.json): NAMED="collective:algorithm@tile:blocks ...",
#                sizes BEGIN to END by FACTOR (4)
#   graphs       all_reduce inside of CUDA graphs, beside NCCL's (gpu_graphs_N.json)
#   handwritten  plans of the language beside kernels written by hand (gpu_handwritten_N.json)
#   plans        programs of the language, preempted (tests/gpu/test_plans.py)
#   tune         `starling tune` on GPUs, tiles included, then its table beside the library's choice, and beside chance (gpu_table_N.txt,
#                gpu_tune_N.json, gpu_choice_N.json): 195 s at most
#   figure7      GC3's Fig. 7 on two GPUs (figure_7_gpu.json, .png)
#   many         1,000 registered collectives, a million small operations (OPERATIONS=n), ranks that are killed
#   sanitizer    compute-sanitizer, memcheck and racecheck (TOOLS), over small collectives (racecheck: KINDS, in SANITIZER_S), all_reduce in
#                graphs, a program of §6.1 (memcheck, ITERATIONS=3), and small cases of the conformance suite
#   ipc          processes that read each other's buffers through CUDA IPC (STARLING_PULL=1): whether an opening stands behind
#                a call of the program, the conformance suite and the programs of §6.1 with it, and all collectives beside
#                NCCL, first by slots (gpu_slots_N.json), then read (gpu_ipc_N.json)
#   pulls        8 to 512 MB between processes: by slots (gpu_pull_0_N.json), and read (gpu_pull_1_N.json)
#   train        bench/train.py: ResNet-50, ViT-B/16 and GPT-2 small beside NCCL (gpu_train_N.json, .png) in TRAIN_S; ITERATIONS=n,
#                MODELS and WAYS as its --models and --ways
#   guard        conformance, streams, PyTorch and graphs with STARLING_GUARD=1, and GPT-2's training with it and without
#                (gpu_train_guard_{1,0}_N.json); guard:quick the training alone
#   held         PyTorch's groups with hold_streams, and GPT-2's training with it and without (gpu_train_held_{1,0}_N.json);
#                held:quick the training alone
#   hosts        ranks that take themselves for those of two hosts: tests/gpu/test_hosts.py, and the links beside NCCL's sockets
#                (gpu_hosts_2.json); hosts:quick messages alone, and the figures
#   sm_free      messages by copy engines (tests/gpu/test_sm_free.py), and their times beside slots, reads and NCCL
#                (gpu_sm_free_{copies,slots,pulls}_N.json); which copies stand behind which (copy_probe);
#                sm_free:quick without most tests, and slots
#   parts        what each part of a small operation costs (bench/gpu/parts_probe.cu), what its caller pays the driver (launch_probe.cu),
#                what the end of a kernel waits for (end_probe.cu), and what memory synchronization domains change of it (domain_probe.cu)
#   standby      when a kernel begins that is needed soon (bench/gpu/standby_probe.cu), with 8 and 16 hardware queues, and in a green context;
#                and what a kernel costs matrix products by being there (bench/gpu/products_beside.py)
#   gaps         what streams and libraries cost a program's own kernels by being there (bench/gpu/kernel_gaps.py)
#   network      whether network cards would reach the GPU's memory by themselves (bench/gpu/network_probe.cu)
#   packets      how fast forms of packets are, and whether they are whole (bench/gpu/packet_probe.cu)
#   writes       which streams come beside a kernel of another that shares their hardware queue (driver_probe writes)
#   probe queues priorities calls times disorder one_queue    of bench/gpu
#   python:FILE  pytest of one file, with what follows a comma as its arguments;  script:FILE... a script
#   mps          processes share GPUs through CUDA's MPS in the steps that follow; unmps: no longer
#   package      builds only
#
# N is the number of ranks: GPUS, or as many as there are GPUs, times RANKS_PER_GPU (1): ranks that share a GPU test all that
# two GPUs would but NVLink, and NCCL beside; as processes they need MPS, or take turns. The library and its CUDA part may come along, built elsewhere:
# PREBUILT=folder that scripts/gpu_prebuilt.sh made. Results name the commit that
# COMMIT says where it is given. One summary.log has the end of every step's log.
set -u
cd "$(dirname "$0")/.."
ROOT=$PWD
steps=()
for argument in "$@"; do
  if [[ $argument == */* && $argument != *:* ]]; then OUT=$argument; else steps+=("$argument"); fi
done
if ((${#steps[@]} == 0)); then
  sed -n '2,/^set -u/{/^set -u/d;s/^# \{0,1\}//;p}' "$0"
  exit 2
fi
OUT=${OUT:-$ROOT/build/gpu_run}
PREBUILT=${PREBUILT:-$ROOT/build/gpu/prebuilt}
SITE=${SITE:-/tmp/starling_site}
PYTHON=${PYTHON:-python3}
LIMIT=${LIMIT:-100}
UNKNOWN=${COMMIT:+[^\"]*} # a library built before the commit was made says another
COMMIT=${COMMIT:-$(git rev-parse --short=12 HEAD 2>/dev/null)}
mkdir -p "$OUT/logs"
export CUDA_MODULE_LOADING=${CUDA_MODULE_LOADING:-EAGER} NCCL_NVLS_ENABLE=0 PYTHONUNBUFFERED=1 STARLING_TIMEOUT_S=${STARLING_TIMEOUT_S:-20}
export STARLING_STRICT=${STARLING_STRICT:-1} # whoever calls the driver where nobody may ends
failed=0

bounded() { # seconds, name, then the command
  local limit=$1 name=$2
  shift 2
  local begin=$SECONDS
  timeout -k 5 "$limit" "$@" >"$OUT/logs/$name.log" 2>&1
  local status=$?
  [ $status = 0 ] || failed=1
  { echo "== $name: status $status$([ $status = 124 ] && echo " (not finished within $limit s)"), $((SECONDS - begin)) s"
    tail -n "${LINES_SHOWN:-25}" "$OUT/logs/$name.log"; } | tee -a "$OUT/summary.log"
}

build_library() {
  [ -f "$PREBUILT/libstarling_cuda.so" ] && return
  if [ -f "$PREBUILT/libstarling_cuda.so.xz" ]; then
    $PYTHON -c 'import lzma, sys; sys.stdout.buffer.write(lzma.open(sys.argv[1]).read())' \
      "$PREBUILT/libstarling_cuda.so.xz" >"$PREBUILT/cuda.part" && mv "$PREBUILT/cuda.part" "$PREBUILT/libstarling_cuda.so" && return
  fi
  cmake -S . -B build/gpu -G Ninja -DSTARLING_CUDA=ON -DSTARLING_BUILD_TESTS=OFF -DSTARLING_BUILD_BENCH=ON \
    -DSTARLING_PYTHON=OFF >"$OUT/logs/cmake.log" 2>&1 && ninja -C build/gpu >"$OUT/logs/build.log" 2>&1 ||
    { tail -30 "$OUT"/logs/{cmake,build}.log; exit 1; }
  mkdir -p "$PREBUILT"
  cp build/gpu/libstarling.so build/gpu/libstarling_cuda.so build/gpu/bench/gpu.* "$PREBUILT"
}

# The package without pip: the extension is compiled for the Python that is here, against the library that is there.
build_package() {
  [ -f "$SITE/starling/_core.so" ] && return
  mkdir -p "$SITE/objects"
  cp -r python/starling "$SITE/"
  mkdir -p "$SITE/starling/lib" "$SITE/starling/bin"
  cp "$PREBUILT"/lib*.so "$SITE/starling/lib/"
  for program in "$PREBUILT"/gpu.*; do ln -sf "$(realpath "$program")" "$SITE/starling/bin/"; done
  cp -r include plans "$SITE/starling/"
  cp -r src/torch "$SITE/starling/torch_src"
  local nanobind
  nanobind=$($PYTHON -c 'import nanobind, os; print(os.path.dirname(nanobind.__file__))')
  local includes="-I$nanobind/include -I$nanobind/ext/robin_map/include -I$($PYTHON -c 'import sysconfig; print(sysconfig.get_path("include"))')"
  printf '%s\n' "$nanobind/src/nb_combined.cpp" src/python/*.cc | xargs -P "$(nproc)" -I{} sh -c \
    'g++ -std=c++20 -O2 -fPIC -fvisibility=hidden -fno-strict-aliasing -DNDEBUG -Iinclude -Isrc '"$includes"' -c {} -o '"$SITE"'/objects/$(basename {}).o' \
    >"$OUT/logs/package.log" 2>&1 || { tail -20 "$OUT/logs/package.log"; exit 1; }
  g++ -shared -o "$SITE/starling/_core.so" "$SITE"/objects/*.o -L"$SITE/starling/lib" -lstarling "-Wl,-rpath,\$ORIGIN/lib" || exit 1
}

# Once for all ranks of all steps, so that no rank's time limit pays for it.
build_adapter() {
  build_package
  $PYTHON -m starling.cli torch build >"$OUT/logs/adapter.log" 2>&1 || { tail -20 "$OUT/logs/adapter.log"; exit 1; }
}

run_pytest() { # seconds, name, arguments
  bounded "$1" "$2" "$PYTHON" -m pytest -q -p no:cacheprovider --durations=5 "${@:3}"
}

bench() { # seconds, result's name, arguments of `starling bench`
  build_package
  bounded "$1" "$2" "$PYTHON" -m starling.cli bench "${@:3}" --json "$OUT/$2.json"
}

# Small counts: the sanitizer runs kernels some hundred times slower. Of PyTorch's kernels none is loaded.
sanitized() { # tool
  local tool=(compute-sanitizer --tool "$1" --error-exitcode 9 --print-limit 20)
  local limit=${SANITIZER_S:-100}
  local shared=$((GPUS > 2 ? GPUS : 2)) # of the suite's ranks several may share a GPU
  # racecheck is so slow that all seven take more than 90 s.
  local kinds=all_reduce,all_gather,reduce_scatter,broadcast,reduce,all_to_all,send_recv
  [ "$1" = memcheck ] || kinds=${KINDS:-all_reduce,send_recv}
  bounded "$limit" "sanitizer_$1" "${tool[@]}" "$PREBUILT/gpu.collective_bench" "gpus=$GPUS" as=threads libraries=starling \
    repetitions=1 slice_us=1 "kinds=$kinds" sizes=8,20000 limit_s=$((limit - 10))
  # Beside racecheck not all of what ranks that share a GPU launch begins, and a device synchronization would wait for
  # the other's streams. Disorder has waits of 20 s, too short for racecheck.
  ((RANKS_PER_GPU > 1 || GPUS < 2)) || [ "$1" = racecheck ] ||
    bounded "$limit" "sanitizer_$1_disorder" "${tool[@]}" "$PREBUILT/gpu.stream_bench" disorder "$GPUS" "${ITERATIONS:-3}" 1
  ((RANKS_PER_GPU > 1)) && [ "$1" = racecheck ] || bounded "$limit" "sanitizer_$1_graph" "${tool[@]}" "$PREBUILT/gpu.collective_bench" "gpus=$GPUS" as=threads libraries=starling:graph \
    repetitions=1 slice_us=1 kinds=all_reduce in_place=0 sizes=8,20000 limit_s=$((limit - 10))
  build_package
  CUDA_MODULE_LOADING=LAZY bounded 130 "sanitizer_$1_conformance" "${tool[@]}" "$PYTHON" tests/gpu/small_cases.py "${CASES:-60}" $shared
}

build_library
NCCL=$($PYTHON -c 'import nvidia.nccl; print(list(nvidia.nccl.__path__)[0] + "/lib")' 2>/dev/null)
export LD_LIBRARY_PATH=$PREBUILT:${NCCL:-}:${LD_LIBRARY_PATH:-}
export PYTHONPATH=$SITE:$ROOT/tests
nvidia-smi -L | tee "$OUT/logs/gpus.log"
export RANKS_PER_GPU=${RANKS_PER_GPU:-1}
GPUS=${GPUS:-$(($(nvidia-smi -L | grep -c '^GPU') * RANKS_PER_GPU))}
for step in "${steps[@]}"; do
  case $step in
  all)
    build_adapter
    files=${FILES:-programs torch_cuda ipc sm_free hosts plans graphs many conformance rings halves streams together diagnose alone calls}
    all_of() { # what is added to the logs' names, pytest's -k, files: JOBS of them at a time
      local suffix=$1 part=$2 file
      for file in "${@:3}"; do
        local limit=$LIMIT
        [ "$file" != ipc ] || limit=$((2 * LIMIT)) # of four ranks it takes longer than any other
        while (($(jobs -rp | wc -l) >= ${JOBS:-1})); do wait -n; done
        LINES_SHOWN=4 run_pytest "$limit" "all_$file$suffix" -rs "tests/gpu/test_$file.py" -k "$part" &
      done
      wait
    }
    if ((GPUS < 4)); then
      all_of "" "" $files
    else
      four= # two ranks at most have together, diagnose and alone
      for file in $files; do [[ " together diagnose alone " == *" $file "* ]] || four+=" $file"; done
      [ "${STAGE:-}" = two ] || all_of _4 "4 or processes-3 or test_programs or test_streams" $four
      for pair in 0 1; do
        [ "${STAGE:-}" != four ] || break
        (
          export CUDA_VISIBLE_DEVICES=$((2 * pair)),$((2 * pair + 1))
          n=0 mine=
          for file in ${files//programs/}; do ((n++ % 2 != pair)) || mine+=" $file"; done
          all_of "" "not 4 and not processes-3" $mine
        ) &
      done
      wait
    fi
    ! grep -q '^== all_.*: status [^0]' "$OUT/summary.log" || failed=1
    ;;
  tests)
    build_adapter
    run_pytest 240 conformance -x tests/gpu/test_conformance.py
    run_pytest 150 streams tests/gpu/test_streams.py
    run_pytest 480 torch tests/gpu/test_torch_cuda.py
    run_pytest 150 disorder tests/gpu/test_programs.py --deselect tests/gpu/test_programs.py::test_situations
    ;;
  programs)
    PROGRAMS_S=${PROGRAMS_S:-245}
    build_adapter
    bench $((PROGRAMS_S + 25)) "gpu_disorder_$GPUS" gpu-disorder -n "$GPUS" --limit "${HANG_S:-30}" --timeout "$PROGRAMS_S"
    ;;
  depleted) # programs on GPUs that others fill, few iterations; and what disorder costs
    build_adapter
    bench 80 "gpu_depleted_$GPUS" gpu-disorder -n "$GPUS" --limit 15 --timeout 75 --iterations 20 \
      --libraries "starling's API,starling in PyTorch" -c "one order,disorder alone,one order with cudaDeviceSynchronize,cudaDeviceSynchronize,all SMs but 8 occupied"
    ;;
  controls)
    build_adapter
    bench 150 "gpu_controls_$GPUS" gpu-disorder -n "$GPUS" --limit "${HANG_S:-20}" --timeout 140 --iterations 20 \
      -c "one order with all SMs but 40 occupied,one order with all SMs but 8 occupied,one order with one hardware queue and synchronization"
    ;;
  bench | bench:full) bench 300 "gpu_collectives_$GPUS" gpu -n "$GPUS" -b 8 -e 2G -f 2 --timeout 280 ;;
  bench:modes)
    bench 300 "gpu_modes_$GPUS" gpu -n "$GPUS" -e "${LAST:-256M}" --no-in-place --ours eager,graph --timeout 280 \
      --nccl "${MODES:-default,registered,symmetric,zero_cta,graph,symmetric_graph}" -C "${COLLECTIVES:-all}"
    ;;
  bench:quick) bench 120 "gpu_collectives_$GPUS" gpu -n "$GPUS" --quick --timeout 100 ;;
  overlap)
    build_adapter
    bench 200 "gpu_overlap_$GPUS" overlap -n "$GPUS" --timeout 170 --plot "$OUT/gpu_overlap_$GPUS.png"
    ;;
  overlap:sm_free)
    build_adapter
    STARLING_SM_FREE=1 bench 60 "gpu_overlap_sm_free_$GPUS" overlap -n "$GPUS" --timeout 50 --kernel "matrix product,matrix product of zeros" -C send_recv,all_gather
    ;;
  holds)
    for by in gate wait doorbell; do
      STARLING_STREAM_HOLD=$by bench 45 "gpu_holds_${by}_$GPUS" gpu -n "$GPUS" -C all_reduce -e 8M --no-in-place --timeout 43
    done
    ;;
  links) LINES_SHOWN=100 bounded "$LIMIT" "gpu_links_$GPUS" "$PREBUILT/gpu.link_probe" ${WAYS:-} && cp "$OUT/logs/gpu_links_$GPUS.log" "$OUT/gpu_links_$GPUS.txt" ;;
  named)
    build_package
    for named in $NAMED; do
      IFS=: read -r collective algorithm blocks <<<"$named"
      class=moved
      [[ $collective == *reduce* ]] && class=plain
      table=$OUT/table_${collective}_${algorithm}_$blocks.txt
      printf '%s\n' "starling-table 1" "topology cuda:processes:ranks=$GPUS:per_host=$GPUS:blocks=$blocks" \
        "  to 8589934592 $collective separate $class built_in $algorithm $blocks" >"$table"
      STARLING_BLOCKS=$blocks STARLING_TABLE=$table LINES_SHOWN=12 bench 60 "gpu_named_${collective}_${algorithm}_${blocks}_$GPUS" gpu -n "$GPUS" \
        -C "$collective" -b "${BEGIN:-2M}" -e "${END:-2G}" -f "${FACTOR:-4}" --no-in-place --timeout 55
    done
    ;;
  overheads) bench 110 gpu_overheads gpu-overheads ;;
  graphs)
    build_adapter
    bench 110 "gpu_graphs_$GPUS" gpu-graphs -n "$GPUS" --timeout 100
    ;;
  handwritten) bench 110 "gpu_handwritten_$GPUS" gpu-handwritten -n "$GPUS" --timeout 90 ;;
  tune)
    build_package
    collectives=${COLLECTIVES:-all_reduce,all_gather,reduce_scatter,broadcast,all_to_all}
    bounded 110 tune "$PYTHON" -m starling.cli tune --device cuda -n "$GPUS" --as threads -C "$collectives" --dtypes float32 \
      -e $((64 << 20)) -f 4 --repetitions 3 --finals 9 --slice-ms 2 --timeout 100 -o "$OUT/gpu_table_$GPUS.txt" \
      --json "$OUT/gpu_tune_$GPUS.json"
    bounded 40 tune_processes "$PYTHON" -m starling.cli tune --device cuda -n "$GPUS" --as processes -C all_reduce --dtypes float32 \
      --places separate -e $((1 << 20)) -f 128 --repetitions 3 --finals 9 --slice-ms 2 --timeout 35 -o "$OUT/gpu_table_$GPUS.txt"
    bench 45 "gpu_choice_$GPUS" choice --device cuda -n "$GPUS" --as threads -c "$collectives" --table "$OUT/gpu_table_$GPUS.txt" \
      --sizes 64,65536,1048576,16777216,67108864 --repetitions 3 --finals 12
    ;;
  figure7)
    build_package
    bounded 100 figure7 "$PYTHON" -m starling.tune.figure_7_measured --device cuda --repetitions 5 --slice-ms 3 --timeout 45 \
      --out "$OUT/figure_7_gpu.json"
    ;;
  plans)
    build_adapter
    run_pytest 240 plans tests/gpu/test_plans.py
    ;;
  many)
    build_adapter
    OPERATIONS=${OPERATIONS:-1000000} run_pytest 300 many tests/gpu/test_many.py
    ;;
  sanitizer) for tool in ${TOOLS:-memcheck racecheck}; do sanitized "$tool"; done ;;
  ipc)
    build_adapter
    bounded 60 ipc_call "$PREBUILT/gpu.resident_probe" ipc_call
    STARLING_PULL=1 run_pytest 240 conformance_ipc -x tests/gpu/test_conformance.py -k processes
    run_pytest 240 ipc tests/gpu/test_ipc.py
    STARLING_PULL=1 run_pytest 240 torch_ipc tests/gpu/test_torch_cuda.py
    STARLING_PULL=0 bench 150 "gpu_slots_$GPUS" gpu -n "$GPUS" --quick --timeout 130
    STARLING_PULL=1 bench 150 "gpu_ipc_$GPUS" gpu -n "$GPUS" --quick --timeout 130
    ;;
  pulls)
    build_package
    large=(-n "$GPUS" -b 8M -e 512M -f 2 --no-check --timeout 55)
    for pull in 0 1; do
      STARLING_PULL=$pull bench 60 "gpu_pull_${pull}_$GPUS" gpu "${large[@]}"
    done
    ;;
  train)
    build_adapter
    bounded "${TRAIN_S:-180}" train "$PYTHON" bench/train.py -n "$GPUS" --iterations "${ITERATIONS:-30}" \
      --models "${MODELS:-resnet50,gpt2,vit_b16}" ${WAYS:+--ways "$WAYS"} --timeout $((${TRAIN_S:-180} - 5)) \
      --json "$OUT/gpu_train_$GPUS.json" --plot "$OUT/gpu_train_$GPUS.png"
    ;;
  guard | guard:quick)
    build_adapter
    [ "$step" = guard:quick ] || STARLING_GUARD=1 run_pytest 400 guard_tests -x tests/gpu/test_conformance.py \
      tests/gpu/test_streams.py tests/gpu/test_torch_cuda.py tests/gpu/test_graphs.py \
      tests/gpu/test_programs.py --deselect tests/gpu/test_programs.py::test_situations
    for guard in 1 0; do
      LINES_SHOWN=80 STARLING_GUARD=$guard bounded 80 "train_guard_$guard" "$PYTHON" bench/train.py --profile -n "$GPUS" --iterations "${ITERATIONS:-15}" \
        --models gpt2 --timeout 75 --json "$OUT/gpu_train_guard_${guard}_$GPUS.json"
    done
    ;;
  held | held:quick)
    build_adapter
    [ "$step" = held ] && run_pytest 400 held_streams tests/gpu/test_torch_cuda.py -k held
    for held in 1 0; do
      LINES_SHOWN=80 STARLING_TORCH_HOLD_STREAMS=$held bounded 80 "train_held_$held" "$PYTHON" bench/train.py --profile -n "$GPUS" --iterations "${ITERATIONS:-15}" \
        --models "${MODELS:-gpt2}" --ways "${WAYS:-bucketed}" --timeout 75 --json "$OUT/gpu_train_held_${held}_$GPUS.json"
    done
    ;;
  hosts)
    build_adapter
    LINES_SHOWN=120 run_pytest 200 hosts -rP --tb=short tests/gpu/test_hosts.py
    LIMIT_S=60 bounded 110 host_figures "$PYTHON" tests/gpu/host_figures.py --json "$OUT/gpu_hosts_2.json"
    ;;
  hosts:quick)
    build_adapter
    LINES_SHOWN=60 run_pytest 200 hosts_quick -rP --tb=short tests/gpu/test_hosts.py -k "graphs or copy_engines or test_torch and (messages or collectives)"
    run_pytest 60 torch_messages tests/gpu/test_torch_cuda.py -k "messages or collectives or disorder"
    LINES_SHOWN=60 LIMIT_S=50 bounded 90 host_figures "$PYTHON" tests/gpu/host_figures.py --json "$OUT/gpu_hosts_2.json"
    STARLING_SM_FREE=1 LINES_SHOWN=60 LIMIT_S=30 bounded 60 host_figures_sm_free "$PYTHON" tests/gpu/host_figures.py \
      --json "$OUT/gpu_hosts_sm_free_2.json" --calls there_and_back
    ;;
  sm_free | sm_free:quick)
    build_adapter
    [ ! -f "$PREBUILT/gpu.copy_probe" ] || LINES_SHOWN=40 bounded 40 copy_probe "$PREBUILT/gpu.copy_probe"
    ways=(copies:SM_FREE=1 pulls:PULL=1 slots:PULL=0)
    chosen=()
    [ "$step" = sm_free ] || { ways=("${ways[@]:0:2}"); chosen=(-k "behind_a_receive or collectives"); }
    for by in "${ways[@]}"; do
      export "STARLING_${by#*:}"
      LINES_SHOWN=80 bench 40 "gpu_sm_free_${by%%:*}_$GPUS" gpu -n "$GPUS" -C "${COLLECTIVES:-send_recv,all_gather,all_to_all,broadcast}" \
        -e 512M --timeout 38
      unset STARLING_SM_FREE STARLING_PULL
    done
    LINES_SHOWN=120 run_pytest "${LIMIT_S:-200}" sm_free -rA --tb=short tests/gpu/test_sm_free.py "${chosen[@]}"
    ;;
  parts)
    bounded "$LIMIT" parts "$PREBUILT/gpu.parts_probe"
    LINES_SHOWN=40 bounded "$LIMIT" launches "$PREBUILT/gpu.launch_probe"
    LINES_SHOWN=40 bounded "$LIMIT" ends "$PREBUILT/gpu.end_probe"
    LINES_SHOWN=40 bounded "$LIMIT" domains "$PREBUILT/gpu.domain_probe"
    ;;
  packets) LINES_SHOWN=120 bounded "$LIMIT" packets "$PREBUILT/gpu.packet_probe" ;;
  network) bounded "$LIMIT" network "$PREBUILT/gpu.network_probe" ;;
  probe) bounded "$LIMIT" probe "$PREBUILT/gpu.resident_probe" ;;
  queues) CUDA_DEVICE_MAX_CONNECTIONS=1 bounded "$LIMIT" queues "$PREBUILT/gpu.resident_probe" copies ;;
  priorities) bounded "$LIMIT" priorities "$PREBUILT/gpu.resident_probe" priorities ;;
  calls)
    bounded "$LIMIT" calls "$PREBUILT/gpu.resident_probe" calls
    LINES_SHOWN=40 bounded 60 driver "$PREBUILT/gpu.driver_probe"
    ;;
  writes)
    for queues in 1 8 32; do
      CUDA_DEVICE_MAX_CONNECTIONS=$queues LINES_SHOWN=12 bounded 40 "writes_$queues" "$PREBUILT/gpu.driver_probe" writes
    done
    ;;
  standby)
    for queues in 8 16; do
      CUDA_DEVICE_MAX_CONNECTIONS=$queues LINES_SHOWN=80 bounded 60 "standby_$queues" "$PREBUILT/gpu.standby_probe"
    done
    LINES_SHOWN=80 bounded 60 standby_green "$PREBUILT/gpu.standby_probe" green
    bounded 60 products_beside "$PYTHON" bench/gpu/products_beside.py "$PREBUILT/gpu.beside.so"
    ;;
  gaps)
    build_adapter
    for what in streams nccl starling; do
      LINES_SHOWN=50 bounded 60 "gaps_$what" "$PYTHON" bench/gpu/kernel_gaps.py "$what"
    done
    ;;
  times) bounded "$LIMIT" times "$PREBUILT/gpu.stream_bench" times ;;
  disorder) for every in 0 1 4; do bounded "$LIMIT" "disorder$every" "$PREBUILT/gpu.stream_bench" disorder 4 200 $every; done ;;
  one_queue) CUDA_DEVICE_MAX_CONNECTIONS=1 bounded "$LIMIT" one_queue "$PREBUILT/gpu.stream_bench" disorder 4 50 1 ;;
  mps)
    export CUDA_MPS_PIPE_DIRECTORY=/tmp/starling_mps CUDA_MPS_LOG_DIRECTORY=/tmp/starling_mps
    export CUDA_DEVICE_MAX_CONNECTIONS=16 # its default are too few for streams that stand (docs/design/0007)
    mkdir -p "$CUDA_MPS_PIPE_DIRECTORY"
    bounded 20 mps nvidia-cuda-mps-control -d
    trap 'echo quit | timeout 10 nvidia-cuda-mps-control' EXIT
    ;;
  unmps)
    echo quit | timeout 20 nvidia-cuda-mps-control
    trap - EXIT
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY CUDA_DEVICE_MAX_CONNECTIONS
    ;;
  package) build_adapter ;;
  python:*)
    IFS=, read -r -a words <<<"${step#python:}"
    build_adapter
    run_pytest "$LIMIT" "python_$(basename "${words[0]%%::*}" .py)" -x "${words[@]}"
    ;;
  script:*) # with arguments, separated by blanks
    read -r -a words <<<"${step#script:}"
    build_adapter
    bounded "$LIMIT" "script_$(basename "${words[0]}" .py)_${words[2]:-all}" "$PYTHON" "${words[@]}"
    ;;
  *) echo "unknown step $step" && exit 2 ;;
  esac
done

# A tree without its history does not know its commit; and where the files were written is of this run alone.
for file in "$OUT"/*.json; do
  [ -f "$file" ] || continue
  sed -i -E -e '/^ +"command": /s# --(json|plot|out) [^ "]+##g' -e "s/^( +)\"commit\": \"$UNKNOWN\"/\1\"commit\": \"$COMMIT\"/" "$file"
done
grep '^==' "$OUT/summary.log" 2>/dev/null
exit $failed
