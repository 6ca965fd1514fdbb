// A deadlock reduced to what takes part in it.
#pragma once

#include <vector>

#include "study/program.h"

namespace starling::study {

struct Shrunk {
  Program program;               // GPUs and collectives renumbered
  std::vector<int> gpus;         // its GPUs' numbers in the original, ascending
  std::vector<int> collectives;  // and its collectives'
};

// The shortest circle of GPUs that wait for each other where `program` stands for ever: these GPUs, one
// collective for each wait, the synchronizations that block them, in their order. The result deadlocks by
// itself. Throws Error when `program` does not deadlock.
Shrunk shrink(const Program& program, Rule rule);

// All GPUs that stand for ever where `program` does, all collectives that they have launched and that never
// end, and the synchronizations that block them, in their order. The result deadlocks by itself: whom a
// collective of it waits for is one of its GPUs. Throws Error when `program` does not deadlock.
Shrunk taking_part(const Program& program, Rule rule);

}  // namespace starling::study
