"""Benchmarks: Starling beside its peers in one run, with nccl-tests' columns. ``starling bench --help``."""
