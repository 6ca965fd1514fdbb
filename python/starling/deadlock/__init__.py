"""The deadlock study: DFCCL's simulator (§2.4), exact, fast, and able to hand its deadlocks to the real scheduler.

`starling deadlock` is the command; here are the parts to use from Python.
"""

from .configuration import Configuration, ConfigurationError, load, three_d
from .groups import free_groups, one_group
from .measure import Measurement, Ratio, measure
from .record import Record, RecordError, parse_record, read_record
from .replay import Machine, Replays, replay
from .sequences import Sequence, shrink_program, shrunk_deadlocks, whole_deadlocks

__all__ = [
    "Configuration",
    "ConfigurationError",
    "Machine",
    "Measurement",
    "Ratio",
    "Record",
    "RecordError",
    "Replays",
    "Sequence",
    "free_groups",
    "load",
    "measure",
    "one_group",
    "parse_record",
    "read_record",
    "replay",
    "shrink_program",
    "shrunk_deadlocks",
    "three_d",
    "whole_deadlocks",
]
