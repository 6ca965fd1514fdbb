// Graphs for programs with streams: what each rank captures. Only what can be survived is drawn: of the lanes
// that hold a branch, by a wait or because their ring is full, each has a branch of its own, which is the
// same on all ranks; or several have it together, whose operations begin in one kernel each time.
#pragma once
#include "machine/sim/program.h"

namespace starling::sim {

// One graph on each of the first `graphs` streams, with lanes of their own behind the program's. Drawn apart:
// whose operations begin together; programs where none do so are as they were without.
void add_graphs(Program& program, uint32_t graphs, Random& random, Random& apart, const Options& machine,
                PlanCache& plans);

// Slots that standing kernels of all graphs keep at most, at the same time.
uint32_t slots_of_graphs(const Program& program);

}  // namespace starling::sim
