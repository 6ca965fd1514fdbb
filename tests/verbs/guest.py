"""Boots a small system of its own under QEMU's software emulation: Debian's kernel, busybox, Soft-RoCE, some programs.

Nothing of this machine but its processor time is used: no KVM, no network, no disk. Two processors at most.
"""

import re
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "scripts"))
import guest_kernel  # noqa: E402

TOOLS = ["ip", "tc", "rdma"]


def missing() -> str:
    """What a guest needs and is not here; "" if all is."""
    for tool in ("qemu-system-x86_64", "busybox", *TOOLS):
        if shutil.which(tool, path="/bin:/usr/bin:/sbin:/usr/sbin") is None:
            return tool
    if qemu_version() < (7, 2):
        return "QEMU 7.2, which emulates the instructions that the library is compiled for"
    if not provider():
        return "libibverbs with the rxe provider"
    if not (guest_kernel.folder() / "package").exists():
        return "a kernel (scripts/guest_kernel.py fetches one)"
    return ""


def qemu_version() -> tuple[int, int]:
    text = subprocess.run(["qemu-system-x86_64", "--version"], stdout=subprocess.PIPE, text=True).stdout
    version = re.search(r"version (\d+)\.(\d+)", text)
    return (int(version[1]), int(version[2])) if version else (0, 0)


def provider() -> Path | None:
    return next(Path("/usr/lib").glob("*/libibverbs/librxe-rdmav*.so"), None)


def libraries(program: Path) -> set[str]:
    """The files that a program is linked to, as the loader looks for them."""
    text = subprocess.run(["ldd", str(program)], capture_output=True, text=True).stdout
    return set(re.findall(r"(/\S+) \(0x", text))


class Archive:
    """A cpio archive ("newc"), which the kernel takes for its first file system."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.known: set[str] = set()

    def add(self, path: str, data: bytes, mode: int) -> None:
        path = path.strip("/")
        if path in self.known:
            return
        parent = str(Path(path).parent)
        if parent != ".":
            self.add(parent, b"", stat.S_IFDIR | 0o755)
        self.entry(path, data, mode)

    def entry(self, path: str, data: bytes, mode: int) -> None:
        self.known.add(path)
        name = path.encode() + b"\0"
        fields = [len(self.known), mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0]
        header = b"070701" + b"".join(b"%08X" % field for field in fields)
        self.parts.append(pad(header + name) + pad(data))

    def file(self, path: str, source: Path) -> None:
        self.add(path, source.read_bytes(), stat.S_IFREG | 0o755)

    def program(self, path: str, source: Path) -> None:
        self.file(path, source)
        for library in libraries(source):
            self.file(library, Path(library))

    def write(self, path: Path) -> None:
        self.entry("TRAILER!!!", b"", 0)
        path.write_bytes(b"".join(self.parts))


def pad(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


def tool(name: str) -> Path:
    found = shutil.which(name, path="/bin:/usr/bin:/sbin:/usr/sbin")
    assert found is not None, name
    return Path(found)


def build(path: Path, programs: list[Path], command: str) -> None:
    archive = Archive()
    init = (HERE / "init.sh").read_text() + f"\n{command}\necho GUEST ended with $?\nsync\npoweroff -f\n"
    archive.add("init", init.encode(), stat.S_IFREG | 0o755)
    archive.file("bin/port", HERE / "port.sh")
    archive.program("bin/busybox", tool("busybox"))
    for name in TOOLS:
        archive.program(f"tools/{name}", tool(name))
    for program in programs:
        archive.program(f"bin/{program.name}", program)
    rxe = provider()
    assert rxe is not None
    # The program opens libibverbs by its name, libibverbs the provider in a folder of its own.
    archive.program(str(rxe.parents[1] / "libibverbs.so.1"), rxe.parents[1] / "libibverbs.so.1")
    archive.program(str(rxe), rxe)
    archive.add("etc/libibverbs.d/rxe.driver", b"driver rxe\n", stat.S_IFREG | 0o644)
    for module in guest_kernel.folder().glob("*.ko"):
        archive.file(f"modules/{module.name}", module)
    archive.write(path)


def boot(programs: list[Path], command: str, limit_s: float) -> str:
    """Runs `command` in a new guest, the programs in /bin. Gives what its console showed, also when time ran out."""
    with tempfile.TemporaryDirectory() as scratch:
        initrd = Path(scratch) / "initrd"
        build(initrd, programs, command)
        arguments = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-M", "q35", "-smp", "2"]
        arguments += ["-cpu", CPU, "-m", "768", "-nic", "none", "-nographic", "-no-reboot"]
        arguments += ["-kernel", str(guest_kernel.folder() / "vmlinux"), "-initrd", str(initrd)]
        arguments += [
            "-append",
            "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check random.trust_cpu=on " + CLOCK,
        ]
        console = Path(scratch) / "console"
        with console.open("wb") as out:
            try:
                subprocess.run(arguments, stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=limit_s)
            except subprocess.TimeoutExpired:
                out.write(f"\nGUEST was stopped after {limit_s:.0f} s\n".encode())
        return console.read_text(errors="replace").replace("\r", "")


# The library is compiled for x86-64-v3; QEMU emulates that since 7.2. Without erms the kernel copies by words, which
# are emulated as fast as bytes.
CPU = "max,-erms,-fsrm"
# Else the guest's clock is the HPET, and to look at it a call of the kernel, and a fault into the emulator.
CLOCK = "tsc=reliable clocksource=tsc"

if __name__ == "__main__":
    # python guest.py COMMAND SECONDS PROGRAM...
    print(boot([Path(name) for name in sys.argv[3:]], sys.argv[1], float(sys.argv[2])))
