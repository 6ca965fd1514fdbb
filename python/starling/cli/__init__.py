"""The command ``starling``: each subcommand stands in a package of its own and is imported when it is called.

What a subcommand needs beyond this package's own dependencies (torch, scikit-learn) may be missing: then that
subcommand says so, and the others work.
"""

from starling.cli.root import main

__all__ = ["main"]
