"""``python -m starling.cli`` is the command ``starling``."""

from starling.cli import main

main()
