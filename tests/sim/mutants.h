// The planted bugs of catalogue.py as cores of the simulator. The code behind is generated (make_mutants.py).
#pragma once
#include <vector>

#include "machine/sim/core.h"
#include "support/planted_bug.h"

namespace starling::sim {

struct Mutant {
  const char* name;
  const char* what;
  const char* file;
  const Core& (*core)();  // shared with others: plant() says that it is this one
  const char* campaign;  // whose cases the hunt looks at
  int number;
};

// The core with this bug, until another one is planted in this process.
inline const Core& plant(const Mutant& mutant) {
  planted_bug = mutant.number;
  return mutant.core();
}

const std::vector<Mutant>& mutants();

// Of those that no hunt has seen.
struct UnseenMutant {
  const char* name;
  const char* what;
  const char* file;
  const char* why;
};

const std::vector<UnseenMutant>& unseen_mutants();

}  // namespace starling::sim
