"""The C++ engine of the study, under one name and with types."""

from __future__ import annotations

from starling._core import study as _study

SYNCHRONIZE: int = _study.SYNCHRONIZE

Counts = _study.Counts
Decision = _study.Decision
Estimate = _study.Estimate
Group = _study.Group
Judgement = _study.Judgement
Model = _study.Model
Order = _study.Order
Program = _study.Program
Replayed = _study.Replayed
Replayer = _study.Replayer
Rule = _study.Rule
Shrunk = _study.Shrunk

count_deadlocks = _study.count_deadlocks
estimate_deadlocks = _study.estimate_deadlocks
find_deadlocks = _study.find_deadlocks
harmful_turns = _study.harmful_turns
judge = _study.judge
planted_deadlocks = _study.planted_deadlocks
round_program = _study.round_program
shrink = _study.shrink
taking_part = _study.taking_part
single_group_probability = _study.single_group_probability
three_d_groups = _study.three_d_groups
