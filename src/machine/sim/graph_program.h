// Graphs for programs with streams: what each rank captures. Only what can be survived is drawn: of the lanes
// that hold a branch, by a wait or because their ring is full, each has a branch of its own, which is the
// same on all ranks.
#pragma once
#include "machine/sim/program.h"

namespace starling::sim {

// One graph on each of the first `graphs` streams, with lanes of their own behind the program's.
void add_graphs(Program& program, uint32_t graphs, Random& random, const Options& machine, PlanCache& plans);

// Slots that standing kernels of all graphs keep at most, at the same time.
uint32_t slots_of_graphs(const Program& program);

}  // namespace starling::sim
