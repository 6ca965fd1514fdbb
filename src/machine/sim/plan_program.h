// Given plans, run many times on a machine with everything that can go wrong: for plans that come from
// outside.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "machine/sim/simulation.h"

namespace starling::sim {

// What is run: a lane for each plan. Plans of collectives that the simulator does not know say what the
// groups of their outputs hold; then nothing else is checked of them.
struct GivenPlan {
  std::shared_ptr<const Plan> plan;  // out of place
  std::vector<std::vector<GroupSource>> origins;  // see LaneSpec
};

// All plans have as many ranks; every rank calls each plan `rounds` times, in an order of its own. Types,
// counts up to `largest_count`, the machine and the schedule follow from the seed.
Report run_plans(Simulation& simulation, const std::vector<GivenPlan>& plans, uint64_t largest_count,
                 uint32_t rounds, uint64_t seed);

}  // namespace starling::sim
