"""Watch the ranks of this host while they run: lanes, blocks, paths; nothing they do is disturbed.

>>> watcher = monitor.Watcher()
>>> for job in monitor.jobs_of(watcher.look()):
...     print(job.name, [rank.rank for rank in job.ranks])
>>> print(monitor.prometheus_text(watcher.look()))
"""

from starling.monitor.prometheus import prometheus_text
from starling.monitor.record import Recording
from starling.monitor.views import (
    Anomaly,
    Job,
    Lane,
    Operation,
    Path,
    Rank,
    Sample,
    Watcher,
    anomalies,
    jobs_of,
    windows,
)

__all__ = [
    "Anomaly",
    "Job",
    "Lane",
    "Operation",
    "Path",
    "Rank",
    "Recording",
    "Sample",
    "Watcher",
    "anomalies",
    "jobs_of",
    "prometheus_text",
    "windows",
]
