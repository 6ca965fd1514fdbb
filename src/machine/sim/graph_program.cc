#include "machine/sim/graph_program.h"

#include <algorithm>

#include "wire/lane.h"

namespace starling::sim {
namespace {

using Kind = GraphNode::Kind;

// How a lane's operations are waited for.
enum class Waits : uint8_t {
  kAtBirth,  // each holds its branch ...
  kInBranch,  // ... or does so later, by a gate
  kInTail,  // all branches are through before
};

struct CapturedLane {
  uint32_t lane;
  uint32_t branch;
  Waits waits;
  uint32_t operations;
};

class GraphWriter {
 public:
  GraphWriter(const std::vector<CapturedLane>& lanes, uint32_t branches, uint32_t stream, Random& random)
      : lanes_(lanes), random_(random) {
    graph_.stream = stream;
    graph_.branches.resize(branches);
  }

  Graph write(const Program& program, uint32_t rank) {
    for (uint32_t b = 0; b < graph_.branches.size(); ++b) {
      std::vector<std::vector<GraphNode>> sequences;
      for (const CapturedLane& lane : lanes_)
        if (lane.branch == b && is_member(program, lane.lane, rank)) sequences.push_back(sequence_of(lane));
      merge(sequences, graph_.branches[b]);
    }
    std::vector<std::vector<GraphNode>> last;
    for (const CapturedLane& lane : lanes_)
      if (lane.waits == Waits::kInTail && is_member(program, lane.lane, rank)) last.push_back(tail_of(lane));
    merge(last, graph_.tail);
    return std::move(graph_);
  }

  static bool is_member(const Program& program, uint32_t lane, uint32_t rank) {
    const auto& ranks = program.lanes[lane].ranks;
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  }

 private:
  std::vector<GraphNode> sequence_of(const CapturedLane& lane) {
    std::vector<GraphNode> nodes;
    uint32_t waited = 0;
    const auto wait_up_to = [&](uint32_t end) {
      for (; waited < end; ++waited) {
        nodes.push_back({Kind::kGate, lane.lane, waited});
        nodes.push_back({Kind::kCheck, lane.lane, waited});
      }
    };
    for (uint32_t k = 0; k < lane.operations; ++k) {
      nodes.push_back({Kind::kFill, lane.lane, k});
      nodes.push_back({lane.waits == Waits::kAtBirth ? Kind::kHeldStart : Kind::kStart, lane.lane, k});
      if (lane.waits == Waits::kAtBirth) nodes.push_back({Kind::kCheck, lane.lane, k});
      if (lane.waits == Waits::kInBranch && random_.chance(kAlways / 2)) wait_up_to(k + 1);
    }
    if (lane.waits == Waits::kInBranch) wait_up_to(lane.operations);
    return nodes;
  }

  // Operations of a lane complete in their order: who waits for the last has them all.
  std::vector<GraphNode> tail_of(const CapturedLane& lane) {
    std::vector<GraphNode> nodes;
    const bool last_only = random_.chance(kAlways / 2);
    if (last_only) nodes.push_back({Kind::kGate, lane.lane, lane.operations - 1});
    for (uint32_t k = 0; k < lane.operations; ++k) {
      if (!last_only) nodes.push_back({Kind::kGate, lane.lane, k});
      nodes.push_back({Kind::kCheck, lane.lane, k});
    }
    return nodes;
  }

  // In any order that keeps each sequence's.
  void merge(std::vector<std::vector<GraphNode>>& sequences, std::vector<GraphNode>& into) {
    std::vector<size_t> at(sequences.size());
    for (;;) {
      std::vector<size_t> open;
      for (size_t s = 0; s < sequences.size(); ++s)
        if (at[s] < sequences[s].size()) open.push_back(s);
      if (open.empty()) return;
      const size_t s = open[random_.below(uint32_t(open.size()))];
      into.push_back(sequences[s][at[s]++]);
    }
  }

  const std::vector<CapturedLane>& lanes_;
  Random& random_;
  Graph graph_;
};

CapturedLane draw_lane(uint32_t number, uint32_t branch, bool may_stand, Random& random) {
  if (!may_stand) return {number, branch, Waits::kInTail, 1 + random.below(3)};
  const auto waits = Waits(random.below(3));
  // More than the ring has places: start kernels wait for those.
  const bool overflows = waits == Waits::kInTail && random.chance(kAlways / 2);
  return {number, branch, waits, overflows ? kLaneDepth + 1 + random.below(6) : 1 + random.below(4)};
}

}  // namespace

void add_graphs(Program& program, uint32_t graphs, Random& random, const Options& machine, PlanCache& plans) {
  program.graphs.assign(program.rank_count, {});
  for (uint32_t g = 0; g < graphs; ++g) {
    std::vector<CapturedLane> lanes;
    const uint32_t branches = 1 + random.below(3);
    for (uint32_t k = 1 + random.below(4); k > 0; --k) {
      const auto number = uint32_t(program.lanes.size());
      const uint32_t branch = uint32_t(lanes.size()) % branches;
      lanes.push_back(draw_lane(number, branch, lanes.size() < branches, random));
      LaneSpec spec = random_lane(random, program.rank_count, machine, plans);
      const size_t kinds = spec.calls.size();
      for (size_t c = kinds; c < lanes.back().operations; ++c) spec.calls.push_back(spec.calls[c % kinds]);
      spec.calls.resize(lanes.back().operations);
      spec.captured = true;
      program.lanes.push_back(std::move(spec));
    }
    for (uint32_t r = 0; r < program.rank_count; ++r)
      program.graphs[r].push_back(GraphWriter(lanes, branches, g, random).write(program, r));
  }
}

// A branch stands at one gate, or at one block of a start kernel; and so does the tail.
uint32_t slots_of_graphs(const Program& program) {
  uint32_t slots = 0;
  for (size_t g = 0; !program.graphs.empty() && g < program.graphs[0].size(); ++g)
    slots += uint32_t(program.graphs[0][g].branches.size());
  return slots;
}

}  // namespace starling::sim
