// The planted bugs of catalogue.py. The code behind is generated (make_mutants.py).
#pragma once
#include <vector>

#include "link/core.h"

namespace starling::link {

struct Mutant {
  const char* name;
  const char* what;
  const char* file;
  const FlowCore& (*core)();
};

const std::vector<Mutant>& mutants();

}  // namespace starling::link
