"""The C++ simulator, under one name and with types."""

from __future__ import annotations

from starling._core import sim as _sim

CAMPAIGNS: list[str] = _sim.CAMPAIGNS

Event = _sim.Event
PlanRuns = _sim.PlanRuns
Replay = _sim.Replay
Report = _sim.Report
Soak = _sim.Soak
replay = _sim.replay
