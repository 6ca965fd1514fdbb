"""Goal: the GPU benchmarks' parents report what their programs found, what was wrong, and what hung, without a GPU.

Method: the disorder programs on CPU tensors, also with a rank that is stopped, and one that dies; a program in the
place of the compiled one that prints rows, and one that stands still.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from cli.left_behind import processes_with
from starling.bench import gpu
from starling.bench.gpu_disorder import Job, Run, described, jobs_of
from starling.bench.gpu_programs import CASES, Clock, order_of
from starling.bench.programs import MissingProgramError

ALONE = "disorder alone"


def run_of(**options: Any) -> Run:
    return Run(
        **{
            "ranks": 2,
            "iterations": 3,
            "limit_s": 60,
            "our_limit_s": 60,
            "device": "cpu",
            "say": lambda text: None,
            **options,
        }
    )


@pytest.mark.parametrize("library", ["starling in PyTorch", "starling's API", "gloo"])
def test_disorder_is_right(library: str) -> None:
    cases = [ALONE, "one order", "one stream"]
    rows = run_of().together(jobs_of(library, cases))
    assert [(row["case"], row["outcome"], row["iterations"]) for row in rows] == [
        (case, "right", 3) for case in cases
    ]
    assert all(row["us_per_iteration"] > 0 for row in rows)


def test_a_missing_program_is_told_once(tmp_path: Path) -> None:
    """Before any rank has begun: each case of each library once ended with the traces of all its ranks."""
    jobs = jobs_of("starling's API", [ALONE])
    with pytest.raises(MissingProgramError, match=r"gpu\.beside\.so.*make build-gpu"):
        run_of(device="cuda", programs=tmp_path).together(jobs)
    assert [(job.cases, job.rows) for job in jobs] == [([ALONE], [])]


def test_orders_differ_from_rank_to_rank() -> None:
    assert order_of(-1, 0) == order_of(-1, 1) == list(range(8))
    assert any(order_of(k, 0) != order_of(k, 1) for k in range(5))


def test_what_ended_on_free_multiprocessors_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Iterations that waited until the occupying kernel was over once made a row that said: right."""
    times = iter((0.0, 10.0, 30.0, 90.0, 90.1, 100.0, 191.0))
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    clock = Clock(90)
    for iteration in (1, 2, 3, 4):
        clock.ended(iteration)
    assert clock.row() == {"iterations": 2, "us_per_iteration": 15e6}
    clock = Clock(90)
    clock.ended(1)
    assert clock.row() == {"iterations": 0}


@pytest.mark.parametrize(("kill", "outcome"), [(signal.SIGSTOP, "hung"), (signal.SIGKILL, "failed")])
def test_who_hangs_or_dies_is_told(kill: signal.Signals, outcome: str) -> None:
    """Of a rank that is stopped the operations' own timeouts would tell: they are longer than the limit here."""
    run = run_of(iterations=100_000, limit_s=5 if outcome == "hung" else 60, timeout_s=250)
    job = Job("starling's API", [ALONE], 0)
    hit = threading.Event()

    def hit_a_rank() -> None:
        while not hit.is_set():
            if job._processes and job._seen and job._begun() > 0:
                os.kill(job._processes[1].pid, kill)
                hit.set()
            time.sleep(0.05)

    thread = threading.Thread(target=hit_a_rank)
    thread.start()
    try:
        rows = run.together([job])
    finally:
        hit.set()
        thread.join()
    assert [row["outcome"] for row in rows] == [outcome], rows
    assert rows[0]["iterations"] > 0
    if outcome == "hung":
        assert "in iteration" in rows[0]["stacks"]  # where a rank was
    assert not job._processes


def test_who_stays_beside_one_that_failed_shows_where_it_stands(tmp_path: Path) -> None:
    run, job = run_of(), Job("starling's API", [ALONE], 0)
    job._folder = tmp_path
    job._seen, job._changed_at = ("",) * 4, time.monotonic() - 4
    stays = (
        "import faulthandler, signal, time\nfaulthandler.register(signal.SIGUSR1)\n"
        "print('here', flush=True)\ntime.sleep(60)"
    )
    for rank, program in enumerate(("raise SystemExit(1)", stays)):
        with (tmp_path / f"log.{rank}").open("wb") as log:
            job._processes.append(
                subprocess.Popen(
                    [sys.executable, "-c", program], stdout=log, stderr=log, start_new_session=True
                )
            )
    try:
        job._processes[0].wait(20)
        until = time.monotonic() + 20
        while "here" not in (tmp_path / "log.1").read_text() and time.monotonic() < until:
            time.sleep(0.05)
        job.look(run)
    finally:
        job.end()
    assert [row["outcome"] for row in job.rows] == ["failed"]
    assert "line 4" in job.rows[0]["stacks"], job.rows


def test_what_is_left_at_the_deadline_is_not_run() -> None:
    run = run_of(iterations=100_000, deadline=time.monotonic() + 5)
    rows = run.together(jobs_of("starling's API", [ALONE, "one stream"]))
    assert [row["outcome"] for row in rows] == ["not run"] * 2


def started(folder: Path, *options: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "starling.cli", "bench", "gpu-disorder", "--device", "cpu"]
    command += ["--iterations", "1000000", "-c", ALONE, "--libraries", "starling's API", "--limit", "60"]
    return subprocess.Popen(
        [*command, "--json", str(folder / "rows.json"), *options], env={**os.environ, "TMPDIR": str(folder)}
    )


def ranks_in(folder: Path) -> list[int]:
    """Processes whose command names a folder in ``folder``."""
    return processes_with(b"gpu_programs", bytes(folder))


def test_on_cpus_what_is_of_cuda_is_not_tried(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "starling.cli", "bench", "gpu-disorder", "--device", "cpu"]
    command += ["--iterations", "1", "--json", str(tmp_path / "rows.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert {row["library"] for row in rows} == {"starling in PyTorch", "starling's API"}
    assert ALONE in {row["case"] for row in rows}
    assert not {"cudaFree", "cudaFreeHost", "legacy default stream"} & {row["case"] for row in rows}


def test_the_command_ends_in_its_time(tmp_path: Path) -> None:
    """--timeout was an option that nothing looked at."""
    with started(tmp_path, "--timeout", "8") as process:
        assert process.wait(timeout=60) == 1
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [row["outcome"] for row in rows] == ["not run"]
    assert not ranks_in(tmp_path)


def test_who_is_told_to_end_takes_the_ranks_along(tmp_path: Path) -> None:
    """They have sessions of their own: a time limit's SIGTERM once left them behind, on the GPUs of what came next."""
    with started(tmp_path) as process:
        until = time.monotonic() + 60
        while len(ranks_in(tmp_path)) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        assert len(ranks_in(tmp_path)) == 2
        for _ in range(3):  # `timeout` tells a process, and then its group
            process.terminate()
        assert process.wait(timeout=30) == 128 + signal.SIGTERM
    assert not ranks_in(tmp_path)
    assert not list(tmp_path.glob("starling-programs-*"))


def test_every_situation_has_cases() -> None:
    assert {case.situation for case in CASES.values()} == {
        "none",
        "synchronization",
        "depleted resources",
        "single queue",
    }


def program(folder: Path, text: str) -> Path:
    path = folder / gpu.PROGRAM
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return folder


HEAD = {"gpus": 2, "device": "a GPU", "as": "processes", "nccl": 22809}


def printed(*rows: dict[str, Any]) -> str:
    return "".join(f"echo '{json.dumps(row)}'\n" for row in (HEAD, *rows))


def row(size: int, in_place: bool, ours_us: float, theirs_us: float, wrong: int = 0) -> dict[str, Any]:
    return {
        "collective": "all_reduce",
        "size_bytes": size,
        "count": size // 4,
        "in_place": in_place,
        "starling": {
            "samples_us": [ours_us] * 3,
            "daemon_blocks": [32, 0, 0],
            "call_us": 1,
            "latency_us": 30,
            "cpu_us": 20,
            "wrong": wrong,
        },
        "nccl": {"samples_us": [theirs_us] * 3, "call_us": 1, "latency_us": 15, "wrong": 0},
    }


SWEEP = gpu.Sweep(2, ["all_reduce"], [8, 4096], timeout_s=60)


def test_rows_have_nccl_tests_columns(tmp_path: Path) -> None:
    text = printed(
        row(8, False, 10, 5), row(8, True, 11, 5), row(4096, False, 20, 40), row(4096, True, 20, 40)
    )
    said: list[str] = []
    doc = gpu.measure(SWEEP, program(tmp_path, text), said.append)
    assert "failure" not in doc
    assert [one["size_bytes"] for one in doc["rows"]] == [8, 4096]
    ours = doc["rows"][1]["out_of_place"]["starling"]
    assert ours["time_us"] == 20 and ours["latency_us"] == 30 and ours["cpu_us"] == 20
    assert ours["daemon_blocks"] == [32, 0, 0] and "parks" not in ours
    assert ours["busbw_gb_per_s"] == pytest.approx(4096 / 20e-6 / 1e9, rel=1e-3)  # 2 (n - 1) / n is 1
    assert said[-1].split()[:2] == ["4096", "1024"] and "2.00" in said[-1]


def test_nccl_s_modes_have_columns_and_the_best_of_them_is_compared(tmp_path: Path) -> None:
    from starling.bench import tables

    def with_modes(size: int, in_place: bool) -> dict[str, Any]:
        samples = {"starling:graph": 4.0, "nccl:symmetric": 3.0, "nccl:graph": 6.0}
        more = {name: {"samples_us": [us], "call_us": 1, "latency_us": 9} for name, us in samples.items()}
        return {**row(size, in_place, 10, 5), **more}

    missing = {"missing": {"nccl:zero_cta": "this NCCL has no NCCL_CTA_POLICY_ZERO (from 2.28 on)"}}
    modes = ["default", "symmetric", "zero_cta", "graph"]
    libraries = gpu.libraries_of(["nccl"], modes, ["eager", "graph"])
    assert libraries == (
        "starling",
        "starling:graph",
        "nccl",
        "nccl:symmetric",
        "nccl:zero_cta",
        "nccl:graph",
    )
    said: list[str] = []
    text = printed(missing, with_modes(8, False), with_modes(8, True))
    sweep = gpu.Sweep(2, ["all_reduce"], [8], libraries=libraries, timeout_s=60)
    doc = gpu.measure(sweep, program(tmp_path, text), said.append)
    found = doc["rows"][0]["out_of_place"]
    assert found["best"] == {"starling": "starling:graph", "nccl": "nccl:symmetric", "ratio": 0.75}
    assert "NCCL_CTA_POLICY_ZERO" in found["nccl:zero_cta"]["unsupported"]
    assert "NCCL_CTA_POLICY_ZERO" in doc["settings"]["missing"]["nccl:zero_cta"]
    assert any("nccl:zero_cta: not measured" in line for line in said)
    assert said[-1].endswith("0.75 starling:graph / nccl:symmetric")
    assert "| 8 B, µs | 10 / 5; 4 (graph) / 3 (symmetric) |" in tables.gpu_collectives_table(doc)


def test_modes_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="no mode 'fast': --nccl takes some of default, registered"):
        gpu.libraries_of(["nccl"], ["fast"], ["eager"])
    with pytest.raises(ValueError, match="no mode: --ours"):
        gpu.libraries_of(["nccl"], ["default"], [])
    assert gpu.libraries_of([], ["default"], ["eager"]) == ("starling",)
    # The program has the same names (bench/gpu/nccl_rank.h).
    header = (Path(__file__).parents[2] / "bench/gpu/nccl_rank.h").read_text()
    assert all(f'"{mode}"' in header for mode in gpu.NCCL_MODES if not mode.endswith("graph"))


def test_wrong_results_failures_and_hangs_are_told(tmp_path: Path) -> None:
    from starling.bench.collectives import wrong_rows

    doc = gpu.measure(SWEEP, program(tmp_path, printed(row(8, False, 1, 1, wrong=7))), lambda text: None)
    assert "7 wrong" in wrong_rows(doc)[0]
    doc = gpu.measure(
        SWEEP,
        program(tmp_path, printed(row(8, False, 1, 1)) + "echo hung: joining >&2\nexit 4\n"),
        lambda text: None,
    )
    assert "exit code 4" in doc["failure"] and "hung: joining" in doc["failure"] and len(doc["rows"]) == 1
    begin = time.monotonic()
    short = gpu.Sweep(2, ["all_reduce"], [8], timeout_s=2)
    doc = gpu.measure(
        short, program(tmp_path, printed(row(8, False, 1, 1)) + "sleep 600\n"), lambda text: None
    )
    assert "not finished within 2 s" in doc["failure"] and len(doc["rows"]) == 1
    assert time.monotonic() - begin < 300


def test_the_readme_s_tables(tmp_path: Path) -> None:
    from starling.bench import tables

    text = printed(
        row(8, False, 10, 5), row(8, True, 11, 5), row(4096, False, 20, 40), row(4096, True, 20, 40)
    )
    doc = gpu.measure(gpu.Sweep(2, ["all_reduce"], [8, 4096]), program(tmp_path, text), lambda text: None)
    table = tables.gpu_collectives_table(doc)
    assert "NCCL 2.28.9" in table and "| 8 B, µs | 10 / 5 |" in table
    rows = run_of().together(jobs_of("starling's API", [ALONE]))
    hung = {"case": ALONE, "library": "nccl", "outcome": "hung", "iterations": 0}
    settings = {"ranks": 2, "iterations": 3, "limit_s": 30}
    disorder = {**doc, "settings": settings, "rows": [described(one) for one in [*rows, hung]]}
    table = tables.gpu_disorder_table(disorder)
    assert "| none: disorder alone | right, " in table and "| **hung** after 0 |" in table


def test_floors_are_what_links_and_launches_allow() -> None:
    from starling.bench import floors

    launches = floors.LAUNCHES * floors.LAUNCH_US
    one_hop = launches + floors.FLIGHT_US
    for name in gpu.MEASURED:
        assert floors.floor(name, 2, 8).us == pytest.approx(one_hop, abs=0.01)
    size = 1 << 30
    # Bus bandwidth at the floor is the rate of the links, whatever the number of ranks; of many ranks' broadcasts
    # and reductions chains are in use.
    for name in gpu.MEASURED:
        for ranks in (2, 4, 8):
            bound = floors.floor(name, ranks, size)
            rate = floors.SUM_GB_PER_S if name in floors.REDUCING else floors.COPY_GB_PER_S
            point = gpu.Point(name, ranks, "float32", "sum", -1, size, size // 4)
            seconds = (bound.us - launches - bound.way.hops * floors.FLIGHT_US) / 1e6
            assert point.algorithm_bandwidth(seconds) * point.bus_factor == pytest.approx(rate), (name, ranks)
            assert bound.bound_by_bytes
    assert floors.floor("all_reduce", 4, 1024).way == floors.Way(1, 3 * 1024)
    assert floors.floor("broadcast", 4, 1024).way.hops == 1
    assert floors.floor("broadcast", 4, size).way.hops == 3
    with pytest.raises(ValueError, match="no floor"):
        floors.floor("gather", 2, 8)


def test_tables_of_floors(tmp_path: Path) -> None:
    from starling.bench import floors

    text = printed(row(8, False, 13, 6.5), row(8, True, 13, 6.5), row(1 << 20, False, 10, 40))
    doc = gpu.measure(gpu.Sweep(2, ["all_reduce"], [8, 1 << 20]), program(tmp_path, text), lambda text: None)
    said = floors.text_of(doc)
    assert "| 8 B | 6.5 / 13.0 / 6.5 |" in said
    band = next(line for line in said.splitlines() if line.startswith("| all_reduce, 8 B"))
    assert band.split(" | ")[4:] == ["2.02", "1.01", "0.50 (0.50)", "1.40", "0 of 1 |"]
    band = next(line for line in said.splitlines() if line.startswith("| all_reduce, 128 KB"))
    assert band.endswith("| 4.00 (4.00) | 1.30 | 1 of 1 |")
    (tmp_path / "found.json").write_text(json.dumps(doc))
    page = tmp_path / "page.md"
    marked = "<!-- floors of found.json -->\n"
    page.write_text(f"before\n{marked}old\n<!-- /floors -->\nbehind\n{marked}<!-- /floors -->\n")
    new = floors.renewed(page)
    assert new.startswith(f"before\n{marked}Floor = ") and new.count("Floor = ") == 2
    assert "<!-- /floors -->\nbehind\n" in new
    page.write_text(new)
    assert floors.renewed(page) == new
    page.write_text("a page")
    with pytest.raises(ValueError, match="no <!-- floors of FILE -->"):
        floors.renewed(page)


def test_aims_within_a_band() -> None:
    from starling.bench import floors

    band = len(floors.BANDS) - 1
    assert [floors.aim_of("all_reduce", band, size << 20) for size in (32, 64)] == [1.05, 1.0]
    assert [floors.aim_of("send_recv", band, size << 20) for size in (32, 128)] == [1.05, 2.0]
    rows = [
        {"collective": "all_reduce", "ranks": 4, "size_bytes": size << 20,
         "out_of_place": {"starling": {"time_us": 100.0}, "nccl": {"time_us": us}}}
        for size, us in ((32, 104.0), (64, 104.0))
    ]  # fmt: skip
    assert "| 1.00; 1.05 at 32 MB | 1 of 2 |" in floors.by_band({"rows": rows})


def test_the_page_has_the_floors_of_its_results() -> None:
    from starling.bench import floors

    root = Path(__file__).parents[2]
    page = root / "docs/AIMS.md"
    same = floors.renewed(page) == page.read_text()  # pytest would compare two long pages for half an hour
    assert same, "the results are newer: starling bench floors --page docs/AIMS.md"


def test_results_say_what_the_environment_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    from starling.bench import results, tables

    for name in [name for name in os.environ if name.startswith(("STARLING_", "NCCL_", "CUDA_"))]:
        monkeypatch.delenv(name)
    doc = results.document("a bench", {}, [])
    assert doc["environment"] == {} and tables._origin(doc).startswith(f"`{doc['command']}`")
    monkeypatch.setenv("STARLING_TABLE", "/somewhere/of/mine/table.txt")
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")
    monkeypatch.setenv("CUDA_HOME", "/usr/local/cuda")
    doc = results.document("a bench", {}, [])
    assert doc["environment"] == {"NCCL_NVLS_ENABLE": "0", "STARLING_TABLE": "table.txt"}
    assert tables._origin(doc).startswith("`NCCL_NVLS_ENABLE=0 STARLING_TABLE=table.txt ")


def test_overheads_stand_beside_dfccl_s(tmp_path: Path) -> None:
    from starling.bench import gpu_overheads, tables

    keys = {key: 1.0 for _, key, *_ in gpu_overheads.ROWS} | {"daemon_shared_bytes": 26000}
    path = program(tmp_path, f"echo '{json.dumps(keys)}'\n") / gpu.PROGRAM
    path.rename(tmp_path / gpu_overheads.PROGRAM)
    doc = gpu_overheads.measure(2, 1000, tmp_path)
    assert "| shared memory of a daemon's block, KB | 26 | 13 |" in tables.gpu_overheads_table(doc)
    (tmp_path / gpu_overheads.PROGRAM).write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(gpu.RunFailedError, match="exit code 3"):
        gpu_overheads.measure(2, 1000, tmp_path)
