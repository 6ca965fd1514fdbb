"""``python -m starling.torch build``: compiles the adapter now, so that no training job has to."""

import sys

from starling.torch._adapter import build

if __name__ == "__main__":
    if sys.argv[1:] != ["build"]:
        sys.exit("usage: python -m starling.torch build")
    print(build(verbose=True))
