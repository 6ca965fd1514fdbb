// Plans whose blocks wait for each other: a plan of one block, its instructions taken apart and given to
// several.
#pragma once
#include <cstdint>
#include <memory>

#include "machine/sim/random.h"
#include "plan/plan.h"

namespace starling::sim {

// Does what the plan does, on `blocks` blocks a rank: any instruction on any block, with results that go from
// one to another through scratch, in the order that dependencies and messages give. Some of the dependencies
// are not needed, and some that follow from others are left out. What the verifier refuses however it is
// drawn (it asks for lengths, slots and readers of a pull) stays as it is.
std::shared_ptr<const Plan> crossing_plan(std::shared_ptr<const Plan> plan, uint32_t blocks, Random& random);

}  // namespace starling::sim
