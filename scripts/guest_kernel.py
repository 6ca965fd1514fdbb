"""Prepares a Linux kernel for a guest (tests/verbs): the extracted vmlinux and some modules, from Debian's package.

Debian's linux-image-amd64, and not the image for clouds, contains Soft-RoCE. It is downloaded, not installed: nothing
of this machine's own boot changes. What is there is left alone. Prints the folder.
"""

import lzma
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

MODULES = {
    *("rdma_rxe", "ib_uverbs", "ib_core", "udp_tunnel", "ip6_udp_tunnel", "crc32_generic"),
    *("veth", "bridge", "stp", "llc", "sch_netem"),
}


def folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "starling" / "guest-kernel"


def run(*command: str, cwd: Path | None = None) -> str:
    return subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.PIPE, text=True).stdout


def extract_vmlinux(image: bytes) -> bytes:
    """The kernel inside a bzImage, which boots in seconds less: the emulator need not run its decompressor."""
    for match in re.finditer(rb"\xfd7zXZ\x00", image):
        try:
            kernel = lzma.LZMADecompressor().decompress(image[match.start() :])
        except lzma.LZMAError:
            continue
        if kernel.startswith(b"\x7fELF"):
            return kernel
    raise SystemExit("guest_kernel: this kernel is compressed in a way that is not known here")


def download(into: Path) -> Path:
    depends = run("apt-cache", "depends", "linux-image-amd64")
    package = re.search(r"Depends: (linux-image-\S+)", depends)
    if package is None:
        raise SystemExit("guest_kernel: apt knows no linux-image-amd64 (Debian has it; run apt-get update)")
    run("apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", package[1], cwd=into)
    return next(into.glob("*.deb"))


def prepare(target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        here = Path(scratch)
        package = download(here)
        archive = here / "package.tar"
        with archive.open("wb") as tar:
            subprocess.run(["dpkg-deb", "--fsys-tarfile", str(package)], check=True, stdout=tar)
        names = [
            name
            for name in run("tar", "tf", str(archive)).splitlines()
            if name.startswith("./boot/vmlinuz") or (name.endswith(".ko") and Path(name).stem in MODULES)
        ]
        run("tar", "xf", str(archive), *names, cwd=here)
        ready = here / "ready"
        ready.mkdir()
        for name in names:
            if name.endswith(".ko"):
                shutil.copy(here / name, ready)
            else:
                (ready / "vmlinux").write_bytes(extract_vmlinux((here / name).read_bytes()))
        (ready / "package").write_text(package.name + "\n")
        shutil.rmtree(target, ignore_errors=True)
        ready.rename(target)


def main() -> None:
    target = folder()
    if not (target / "package").exists():
        try:
            prepare(target)
        except subprocess.CalledProcessError as error:
            sys.exit(f"guest_kernel: {' '.join(error.cmd[:3])} failed ({error.returncode})")
    print(target)


if __name__ == "__main__":
    main()
