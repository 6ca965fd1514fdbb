// Replays on a GPU that has room for what stands of them and for a daemon, or for less: captured operations
// that come to places of their lane's ring where others are under way still
// (docs/design/0019-cuda-graphs.md), because nobody waited for those, or because a rank died and broken lanes
// release their streams. Where it died, peers are at times in calls that wait in the driver for the replay,
// and no daemon can be launched. In half of the programs a branch has up to three lanes, whose operations
// begin in one kernel each time, in another order on each rank. Beside the campaigns, where such lanes and so
// little room are seldom.
#pragma once
#include "machine/sim/campaign.h"
#include "machine/sim/graph_program.h"
#include "machine/sim/stream_program.h"

namespace starling::sim {

namespace crowded {

// More than the ring has places, or a few of which several replays are under way in a broken lane.
inline uint32_t operation_count(Random& random) {
  return random.chance(kAlways / 2) ? kLaneDepth + 1 + random.below(6) : 1 + random.below(4);
}

inline LaneSpec lane(Random& random, uint32_t operations, const Program& program, uint32_t blocks,
                     PlanCache& plans) {
  LaneSpec lane;
  for (uint32_t r = 0; r < program.rank_count; ++r) lane.ranks.push_back(r);
  const uint32_t size = program.rank_count;
  for (uint32_t k = 0; k < operations; ++k) {
    CallSpec& call = lane.calls.emplace_back();
    const char* const name = random.chance(kAlways / 2) ? "ring" : "one_shot_packets";
    call.plan = plans.get(name, {Collective::kAllReduce, size, 0, 1 + random.below(blocks), false});
    call.count = 1 + random.below(100);
  }
  lane.captured = true;
  return lane;
}

// A branch of lanes with as many operations each, the first of which begin together, and so on.
struct Branch {
  std::vector<uint32_t> lanes;
  uint32_t operations;
  bool held;
};

inline void capture(Graph& graph, Branch lanes, Random& order) {
  using Kind = GraphNode::Kind;
  std::vector<GraphNode>& branch = graph.branches.emplace_back();
  for (uint32_t k = 0; k < lanes.operations; ++k) {
    shuffle(lanes.lanes, order);
    for (const uint32_t lane : lanes.lanes) branch.push_back({Kind::kFill, lane, k});
    for (const uint32_t lane : lanes.lanes)
      branch.push_back({lanes.held ? Kind::kHeldStart : Kind::kStart, lane, k, k + 1});
    if (!lanes.held) continue;
    for (const uint32_t lane : lanes.lanes) branch.push_back({Kind::kCheck, lane, k});
  }
  if (lanes.held) return;
  for (const uint32_t lane : lanes.lanes) {
    graph.tail.push_back({Kind::kGate, lane, lanes.operations - 1});
    for (uint32_t k = 0; k < lanes.operations; ++k) graph.tail.push_back({Kind::kCheck, lane, k});
  }
}

}  // namespace crowded

inline Case crowded_replays(uint64_t seed, PlanCache& plans) {
  Random random(seed, 24);
  Case drawn{{}, stream_options(StreamKind::kGraphs, seed), seed};
  Options& o = drawn.options;
  o.blocks = 2 + random.below(3);
  o.gate_limit = random.below(2);
  o.gates = 1;
  // Blocks of one kernel that look at the same place, one before it is free and one behind.
  if (random.chance(kAlways / 2)) {
    o.stall_chance = kAlways / 32;
    o.stall_ns = 2'000;
  }
  Program& program = drawn.program;
  program.name = "crowded replays";
  program.rank_count = 2 + random.below(2);
  program.streams = 1;
  std::vector<crowded::Branch> branches(1 + random.below(3));
  Random apart(seed, 27);
  const bool together = apart.chance(kAlways / 2);
  for (crowded::Branch& branch : branches) {
    branch.operations = crowded::operation_count(random);
    branch.lanes.push_back(uint32_t(program.lanes.size()));
    program.lanes.push_back(crowded::lane(random, branch.operations, program, o.blocks, plans));
    for (uint32_t more = together ? apart.below(3) : 0; more > 0; --more) {
      branch.lanes.push_back(uint32_t(program.lanes.size()));
      program.lanes.push_back(crowded::lane(apart, branch.operations, program, o.blocks, plans));
    }
    branch.held = random.chance(kAlways / 3);
  }
  for (uint32_t rank = 0; rank < program.rank_count; ++rank) {
    Graph& graph = program.graphs.emplace_back().emplace_back();
    for (const crowded::Branch& branch : branches) crowded::capture(graph, branch, apart);
  }
  // Each lane may have a block that waits.
  o.sm_slots = o.gate_limit + uint32_t(program.lanes.size()) + o.blocks - random.below(o.blocks);
  const bool dies = random.chance(kAlways / 2);
  if (dies) {
    o.dying_rank = int32_t(random.below(program.rank_count));
    o.dying_ns = random.skewed(100'000);
    o.timeout_ns = 400'000;
  }
  for (uint32_t rank = 0; rank < program.rank_count; ++rank) {
    Random own(hash_combine(seed, rank), 25);
    std::vector<Step>& steps = program.steps.emplace_back();
    for (uint32_t replay = 0; replay < 3; ++replay) {
      if (own.chance(kAlways / 4)) steps.push_back({StepKind::kPause, 0, own.skewed(100'000)});
      steps.push_back({StepKind::kReplay, 0});
      if (dies && own.chance(kAlways / 2))
        steps.push_back({own.chance(kAlways / 2) ? StepKind::kCopyBack : StepKind::kLoadKernels});
    }
  }
  return drawn;
}

}  // namespace starling::sim
