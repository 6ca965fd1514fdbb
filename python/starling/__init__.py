"""Starling: collective communication whose collectives yield.

Importing this package is cheap and needs neither torch nor a GPU. ``import starling.torch`` registers the
PyTorch backend ``starling``; ``starling --help`` lists the commands.
"""

from pathlib import Path

from starling import cpu, errors
from starling._version import __version__
from starling.comm import Communicator, LargeMessages, wait_all
from starling.context import Context, Order, Scheduling, Statistics, TraceRecord
from starling.errors import StarlingError
from starling.messages import Recv, Send
from starling.request import Request

__all__ = [
    "Communicator",
    "Context",
    "LargeMessages",
    "Order",
    "Recv",
    "Request",
    "Scheduling",
    "Send",
    "StarlingError",
    "Statistics",
    "TraceRecord",
    "__version__",
    "cpu",
    "errors",
    "include_dir",
    "library_path",
    "wait_all",
]

_PACKAGE_DIR = Path(__file__).resolve().parent


def include_dir() -> Path:
    """The folder that holds ``starling/starling.h``, for compiling against the C API."""
    return _PACKAGE_DIR / "include"


def library_path() -> Path:
    """The shared library ``libstarling.so`` of this installation."""
    return _PACKAGE_DIR / "lib" / "libstarling.so"
