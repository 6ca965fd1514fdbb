// The planted bugs of catalogue.py as cores of the simulator. The code behind is generated (make_mutants.py).
#pragma once
#include <vector>

#include "machine/sim/core.h"

namespace starling::sim {

struct Mutant {
  const char* name;
  const char* what;
  const char* file;
  const Core& (*core)();
  const char* campaign;  // whose cases the hunt looks at
};

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
