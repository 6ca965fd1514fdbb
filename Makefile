# One command each; every target sets up what it needs. `make PYTHON=python3 ...` uses that Python as it is
# instead of setting up .venv (a machine without a network, say).
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: demo test test-cpp test-python test-upstream sanitize sanitize-build test-gpu build-gpu cuda-check lint format bench build setup clean help

ifeq ($(origin PYTHON),command line)
  SETUP := true
else
  PYTHON := $(CURDIR)/.venv/bin/python
  SETUP := scripts/setup.sh
  export PATH := $(CURDIR)/.venv/bin:$(PATH)
  export VIRTUAL_ENV := $(CURDIR)/.venv
endif
export PYTHON
STARLING := $(PYTHON) -m starling.cli

demo: build ## train a model on four ranks, every rank in its own random order
	@$(STARLING) demo train

test: build ## all tests; the last line is "N passed, N failed, N skipped"
	@$(PYTHON) scripts/run_tests.py

test-cpp: build ## the C++ tests
	@$(PYTHON) scripts/run_tests.py --name cpp --only cpp

test-python: build ## the Python tests; ARGS="-k name" chooses
	@$(PYTHON) scripts/run_tests.py --name python --only python -- $(ARGS)

test-upstream: build ## PyTorch's own distributed tests over the backend on eight ranks (make test: on three)
	@UPSTREAM_WORLD_SIZE=8 $(PYTHON) scripts/run_tests.py --name upstream --only python -- tests/torch/test_upstream.py $(ARGS)

sanitize: setup ## the C++ tests under ThreadSanitizer, and under AddressSanitizer + UBSan; ARGS=tsan or asan runs one
	@scripts/sanitize.sh $(ARGS)

sanitize-build: setup ## what `make sanitize` runs, built only
	@scripts/sanitize.sh --build

test-gpu: ## the tests that need a GPU, on what `make build-gpu` or pip installed
	@$(if $(wildcard $(PYTHON)),$(PYTHON),python3) -c "import starling" 2>/dev/null || { echo "starling is not installed here: make build-gpu"; exit 2; }
	@STARLING_STRICT=1 PYTHONPATH=tests $(if $(wildcard $(PYTHON)),$(PYTHON),python3) -m pytest -q tests/gpu $(ARGS)

build-gpu: setup ## compile with the CUDA part (needs nvcc) into build/gpu-dev and install
	@$(PYTHON) scripts/build.py --build-dir build/gpu-dev --define STARLING_CUDA=ON

cuda-check: ## compile and link all that is for GPUs (needs nvcc, no GPU)
	@cmake -S . -B build/cuda-check -G Ninja -DSTARLING_CUDA=ON -DSTARLING_QUICK=ON -DSTARLING_BUILD_TESTS=OFF \
	  -DSTARLING_BUILD_BENCH=ON -DSTARLING_PYTHON=OFF -DSTARLING_CORE=$(CURDIR)/build/dev/libstarling.so >/dev/null
	@cmake --build build/cuda-check --target starling_cuda_check

lint: setup ## clang-format, ruff, mypy on what git tracks
	@scripts/lint.sh

format: setup ## repair the format
	@scripts/lint.sh --fix

bench: build ## all benchmarks, the README's tables too (12 minutes); ARGS="-n 4 ..." measures something else
	@$(STARLING) bench $(or $(ARGS),all)

build: setup ## compile into build/dev and install into .venv
	@$(PYTHON) scripts/build.py --define STARLING_BUILD_TESTS=ON --define STARLING_BUILD_BENCH=ON \
	  --define STARLING_WERROR=ON --define STARLING_CUDA=OFF --define STARLING_UNITY=$(or $(UNITY),ON)

setup: ## system packages and .venv
	@$(SETUP)

clean: ## forget everything built (keeps .venv)
	rm -rf build

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | column -t -s '|'
