"""Where the headers, the library and the adapter's sources lie."""

from dataclasses import dataclass
from pathlib import Path

import starling


@dataclass(frozen=True)
class Installation:
    """What the adapter is compiled from and linked against."""

    sources: Path
    include: Path
    library: Path


def find_installation() -> Installation:
    """The installed package, or the source tree around it if it was never installed."""
    package = Path(starling.__file__).resolve().parent
    installed = Installation(package / "torch_src", starling.include_dir(), starling.library_path())
    if installed.sources.is_dir() and installed.library.is_file():
        return installed
    root = package.parents[1]
    libraries = sorted(root.glob("build/*/libstarling.so"), key=lambda path: path.stat().st_mtime)
    if (root / "src/torch").is_dir() and libraries:
        return Installation(root / "src/torch", root / "include", libraries[-1])
    raise RuntimeError(
        f"starling.torch: this installation has no adapter sources or no libstarling.so (looked in {package}"
        f" and {root}). Remedy: reinstall with `pip install .` in the source tree."
    )
