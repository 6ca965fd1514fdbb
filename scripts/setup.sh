#!/usr/bin/env bash
# Makes a fresh Debian or Ubuntu machine ready: system packages through apt, then .venv with pinned packages.
# Safe to run again: what is there is left alone, and after the first success it returns at once.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '[setup] %s\n' "$*"; }
fail() {
  printf '[setup] failed: %s\n' "$*" >&2
  exit 1
}

venv=.venv
stamp="$venv/.starling-$(cat scripts/setup.sh scripts/requirements.txt | sha256sum | cut -c1-16)"

# --- system packages -------------------------------------------------------------------------------------------
python_ready() {
  python3 - <<'PY' 2>/dev/null
import ensurepip, os, sys, sysconfig, venv
ok = sys.version_info >= (3, 10) and os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h"))
sys.exit(0 if ok else 1)
PY
}

missing=()
need() { # need PACKAGE TEST...: names the package when the test fails
  local package=$1
  shift
  "$@" >/dev/null 2>&1 || missing+=("$package")
}
need g++ command -v g++
need make command -v make
need git command -v git
need cmake command -v cmake
need ninja-build command -v ninja
need libgtest-dev test -f /usr/include/gtest/gtest.h
need libboost-context-dev test -f /usr/include/boost/context/detail/fcontext.hpp
need openmpi-bin command -v mpirun
need libopenmpi-dev command -v mpicc
need iproute2 command -v ip
need ca-certificates test -f /etc/ssl/certs/ca-certificates.crt
need libibverbs-dev test -f /usr/include/infiniband/verbs.h
python_ready || missing+=(python3 python3-venv python3-dev)
# The guest in which RDMA is tested (tests/verbs). Where these cannot be had, those tests are skipped.
if [[ $(uname -m) == x86_64 ]] && command -v apt-get >/dev/null; then
  need qemu-system-x86 command -v qemu-system-x86_64
  need busybox-static command -v busybox
  need ibverbs-providers sh -c 'ls /usr/lib/*/libibverbs/librxe-rdmav*.so'
fi

if ((${#missing[@]})); then
  say "installing system packages: ${missing[*]}"
  sudo=()
  if [[ $(id -u) != 0 ]]; then
    command -v sudo >/dev/null || fail "not root and no sudo; ask an administrator for: ${missing[*]}"
    sudo=(sudo)
  fi
  command -v apt-get >/dev/null || fail "no apt-get here; install by hand: ${missing[*]}"
  log=$(mktemp)
  # A stale foreign repository makes the update fail without harm to the packages needed here.
  "${sudo[@]}" apt-get update >"$log" 2>&1 || say "apt-get update failed; trying to install all the same"
  if ! "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}" \
    >>"$log" 2>&1; then
    tail -n 20 "$log" >&2
    fail "apt-get could not install ${missing[*]} (log: $log)"
  fi
  rm -f "$log"
  python_ready || fail "Python 3.10 or newer with its headers is needed; python3 here is $(python3 --version 2>&1)"
fi

# --- rails that lose data without a word (tests/hosts) ---------------------------------------------------------
# Without nftables they do so by neighbours that nobody is; so a machine that cannot have them is well.
if [[ ! -f $stamp && $(id -u) == 0 ]] && ! command -v nft >/dev/null && command -v apt-get >/dev/null; then
  nftables() { DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends nftables >/dev/null 2>&1; }
  nftables || { apt-get update >/dev/null 2>&1 && nftables; } || say "no nftables to be had here"
fi

# --- a kernel for the guest ------------------------------------------------------------------------------------
if command -v qemu-system-x86_64 >/dev/null && command -v apt-get >/dev/null; then
  kernel() { python3 scripts/guest_kernel.py >/dev/null 2>&1; }
  # Without a list of packages, apt knows no kernel.
  kernel || { apt-get update >/dev/null 2>&1 && kernel; } ||
    say "no kernel for a guest here (scripts/guest_kernel.py says why): the tests of RDMA will be skipped"
fi

# --- Python packages -------------------------------------------------------------------------------------------
if [[ -f $stamp ]]; then
  exit 0
fi

if [[ ! -x $venv/bin/python ]] || ! "$venv/bin/python" -c 'import pip' 2>/dev/null; then
  say "creating $venv with $(python3 --version)"
  python3 -m venv "$venv"
fi

# PyPI's torch for Linux brings gigabytes of CUDA libraries. Without a GPU take the CPU build, where it can be had.
pip_arguments=(--disable-pip-version-check --quiet --requirement scripts/requirements.txt)
torch_index=https://download.pytorch.org/whl/cpu
if ! command -v nvidia-smi >/dev/null && ! "$venv/bin/python" -c 'import torch' 2>/dev/null; then
  if "$venv/bin/python" - "$torch_index/torch/" 2>/dev/null <<'PY'; then
import sys, urllib.request
urllib.request.urlopen(sys.argv[1], timeout=5).read(1)
PY
    say "no GPU here: taking the CPU build of torch"
    pip_arguments+=(--extra-index-url "$torch_index")
  fi
fi
if ! "$venv/bin/python" - <<'PY' 2>/dev/null; then
import re, subprocess, sys
version = re.search(r"(\d+)\.(\d+)", subprocess.check_output(["cmake", "--version"], text=True))
sys.exit(0 if (int(version[1]), int(version[2])) >= (3, 25) else 1)
PY
  say "cmake here is older than 3.25: taking a newer one into $venv"
  pip_arguments+=("cmake>=3.25,<4")
fi

say "installing Python packages into $venv (torch is the large one; a few minutes)"
"$venv/bin/python" -m pip install "${pip_arguments[@]}" || fail "pip could not install scripts/requirements.txt"

rm -f "$venv"/.starling-*
touch "$stamp"
say "ready: $("$venv/bin/python" --version), torch $("$venv/bin/python" -c 'import torch; print(torch.__version__)')"
