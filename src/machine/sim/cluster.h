// What the ranks of one simulation know of each other.
#pragma once
#include <cstdint>
#include <vector>

#include "machine/sim/core.h"
#include "machine/sim/lane.h"
#include "machine/sim/oracle.h"
#include "machine/sim/program.h"

namespace starling::sim {

class Proxy;

struct Cluster {
  World* world;
  const Options* options;
  const Program* program;
  const Core* core;
  std::vector<std::vector<SimLane*>> lanes;  // lanes[lane][rank in lane]
  std::vector<uint32_t> depth;               // per lane: Program::depth()
  std::vector<uint64_t> completed;           // per lane: operations checked, all ranks together
  std::vector<Expected> expected;  // per lane: the last one computed that is the same on all ranks
  std::vector<Proxy*> proxies;  // by rank; empty: one host
};

}  // namespace starling::sim
