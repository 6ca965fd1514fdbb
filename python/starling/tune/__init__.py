"""Choosing among plans: a cost model that prunes, measurements that decide, and one table that all ranks share.

``starling tune`` does all of it; ``STARLING_TABLE``, or ``Communicator.use_table``, puts the result to use.
"""

from starling.tune.model import Link, Machine, Span, cost_us, timeline
from starling.tune.table import Row, Table

__all__ = ["Link", "Machine", "Row", "Span", "Table", "cost_us", "timeline"]
