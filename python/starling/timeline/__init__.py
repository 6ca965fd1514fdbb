"""Timelines of what every rank's blocks did: from trace records to a picture and to a trace for ui.perfetto.dev.

>>> events = timeline.of_context(context, rank=0)          # or of_torch(rank=...)
>>> timeline.save(path, events)                            # to bring the ranks' events together
>>> timeline.write_perfetto(path, events)
>>> timeline.draw(path, events)
"""

from starling.timeline.events import Event, load, of_context, of_torch, save
from starling.timeline.perfetto import perfetto_trace, write_perfetto
from starling.timeline.picture import draw
from starling.timeline.spans import Span, residencies, runs, unfinished

__all__ = [
    "Event",
    "Span",
    "draw",
    "load",
    "of_context",
    "of_torch",
    "perfetto_trace",
    "residencies",
    "runs",
    "save",
    "unfinished",
    "write_perfetto",
]
