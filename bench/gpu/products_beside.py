#!/usr/bin/env python3
"""What a kernel costs matrix products by being there: GPT-2's, 24 texts of 1,024, in bfloat16, alone and beside one
block of which one thread looks for a word: of one warp, and of 512 threads with 29 KB of shared memory.

    bench/gpu/products_beside.py FOLDER/gpu.beside.so
"""

import ctypes
import statistics
import sys

import torch

TOKENS, WIDTH, WORDS = 24 * 1024, 768, 50304
# rows, inner, columns; whether the operands lie transposed
PRODUCTS = {
    "8192 x 8192 x 8192": (8192, 8192, 8192, False, False),
    "head": (TOKENS, WIDTH, WORDS, False, True),
    "head, gradient of its input": (TOKENS, WORDS, WIDTH, False, False),
    "head, gradient of its weights": (WORDS, TOKENS, WIDTH, True, False),
    "up": (TOKENS, WIDTH, 4 * WIDTH, False, True),
    "down": (TOKENS, 4 * WIDTH, WIDTH, False, True),
    "up, gradient of its weights": (4 * WIDTH, TOKENS, WIDTH, True, False),
    "query, key and value": (TOKENS, WIDTH, 3 * WIDTH, False, True),
}
BESIDE = {"alone": (0, 0), "one warp": (32, 0), "512 threads": (512, 29 << 10)}
ROUNDS, TIMES, LIMIT_S = 2, 9, 30.0


def matrix(rows: int, columns: int, transposed: bool) -> torch.Tensor:
    shape = (columns, rows) if transposed else (rows, columns)
    made = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    return made.t() if transposed else made


def times_us(left: torch.Tensor, right: torch.Tensor) -> list[float]:
    times = []
    for _ in range(TIMES):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        _ = left @ right
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000)
    return times


def main(library: str) -> None:
    kernels = ctypes.CDLL(library)

    def checked(status: int) -> None:
        if status != 0:
            raise SystemExit(f"{library}: error {status} of the runtime")

    print(f"{torch.cuda.get_device_name()}: us, medians of {ROUNDS * TIMES}\n")
    print("| product | " + " | ".join(BESIDE) + " |\n| --- |" + " ---: |" * len(BESIDE))
    for name, (rows, inner, columns, left_turned, right_turned) in PRODUCTS.items():
        left, right = matrix(rows, inner, left_turned), matrix(inner, columns, right_turned)
        for _ in range(3):
            _ = left @ right
        measured: dict[str, list[float]] = {key: [] for key in BESIDE}
        for _ in range(ROUNDS):
            for key, (threads, shared_bytes) in BESIDE.items():
                torch.cuda.synchronize()
                occupation = ctypes.c_void_p()
                if threads:
                    checked(
                        kernels.beside_look(
                            0, threads, shared_bytes, ctypes.c_double(LIMIT_S), ctypes.byref(occupation)
                        )
                    )
                measured[key] += times_us(left, right)
                checked(kernels.beside_release(0, occupation))
        row = (f"{statistics.median(times):,.0f}" for times in measured.values())
        print(f"| {name} | " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
