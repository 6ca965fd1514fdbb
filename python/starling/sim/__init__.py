"""The simulator from Python: campaigns of seeds, replays, timelines. The core runs in C++ (src/machine/sim)."""

from starling.sim.engine import CAMPAIGNS, Event, Replay, Report, Soak, replay

__all__ = ["CAMPAIGNS", "Event", "Replay", "Report", "Soak", "replay"]
