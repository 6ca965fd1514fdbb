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
  uint32_t
      leader;  // the lane whose operations its own begin with, the first with the first, and so on; itself
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
      for (const CapturedLane& leader : lanes_) {
        if (leader.branch != b || leader.leader != leader.lane) continue;
        std::vector<CapturedLane> together;
        for (const CapturedLane& lane : lanes_)
          if (lane.leader == leader.lane && is_member(program, lane.lane, rank)) together.push_back(lane);
        if (!together.empty()) sequences.push_back(sequence_of(together));
      }
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
  // Of one lane, or of several whose operations begin together, each time in another order.
  std::vector<GraphNode> sequence_of(std::vector<CapturedLane> lanes) {
    std::vector<GraphNode> nodes;
    std::vector<uint32_t> waited(lanes_.back().lane + 1);
    const auto wait_up_to = [&](const CapturedLane& lane, uint32_t end) {
      for (uint32_t& k = waited[lane.lane]; k < end; ++k) {
        nodes.push_back({Kind::kGate, lane.lane, k});
        nodes.push_back({Kind::kCheck, lane.lane, k});
      }
    };
    uint32_t most = 0;
    for (const CapturedLane& lane : lanes) most = std::max(most, lane.operations);
    for (uint32_t k = 0; k < most; ++k) {
      shuffle(lanes, random_);
      std::vector<CapturedLane> now = lanes;
      std::erase_if(now, [k](const CapturedLane& lane) { return k >= lane.operations; });
      const uint32_t together = now.size() > 1 ? ++groups_ : 0;
      for (const CapturedLane& lane : now) nodes.push_back({Kind::kFill, lane.lane, k});
      for (const CapturedLane& lane : now) {
        const Kind kind = lane.waits == Waits::kAtBirth ? Kind::kHeldStart : Kind::kStart;
        nodes.push_back({kind, lane.lane, k, together});
      }
      for (const CapturedLane& lane : now) {
        if (lane.waits == Waits::kAtBirth) nodes.push_back({Kind::kCheck, lane.lane, k});
        if (lane.waits == Waits::kInBranch && random_.chance(kAlways / 2)) wait_up_to(lane, k + 1);
      }
    }
    for (const CapturedLane& lane : lanes)
      if (lane.waits == Waits::kInBranch) wait_up_to(lane, lane.operations);
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

  // In any order that keeps each sequence's. What begins together stays so.
  void merge(std::vector<std::vector<GraphNode>>& sequences, std::vector<GraphNode>& into) {
    std::vector<size_t> at(sequences.size());
    for (;;) {
      std::vector<size_t> open;
      for (size_t s = 0; s < sequences.size(); ++s)
        if (at[s] < sequences[s].size()) open.push_back(s);
      if (open.empty()) return;
      const size_t s = open[random_.below(uint32_t(open.size()))];
      for (const size_t end = end_of_together(sequences[s], at[s]); at[s] < end; ++at[s])
        into.push_back(sequences[s][at[s]]);
    }
  }

  const std::vector<CapturedLane>& lanes_;
  Random& random_;
  Graph graph_;
  uint32_t groups_ = 0;
};

CapturedLane draw_lane(uint32_t number, uint32_t branch, bool may_stand, Random& random) {
  if (!may_stand) return {number, branch, Waits::kInTail, 1 + random.below(3), number};
  const auto waits = Waits(random.below(3));
  // More than the ring has places: start kernels wait for those.
  const bool overflows = waits == Waits::kInTail && random.chance(kAlways / 2);
  const uint32_t operations = overflows ? kLaneDepth + 1 + random.below(6) : 1 + random.below(4);
  return {number, branch, waits, operations, number};
}

// It is waited for as the leader is, or in the tail.
CapturedLane draw_companion(uint32_t number, const CapturedLane& leader, Random& random) {
  CapturedLane lane = leader;
  lane.lane = number;
  if (random.chance(kAlways / 2)) return lane;
  lane.waits = Waits::kInTail;
  lane.operations = 1 + random.below(3);
  return lane;
}

void add_lane(Program& program, uint32_t operations, Random& random, const Options& machine,
              PlanCache& plans) {
  LaneSpec spec = random_lane(random, program.rank_count, machine, plans);
  const size_t kinds = spec.calls.size();
  for (size_t c = kinds; c < operations; ++c) spec.calls.push_back(spec.calls[c % kinds]);
  spec.calls.resize(operations);
  spec.captured = true;
  program.lanes.push_back(std::move(spec));
}

}  // namespace

void add_graphs(Program& program, uint32_t graphs, Random& random, Random& apart, const Options& machine,
                PlanCache& plans) {
  program.graphs.assign(program.rank_count, {});
  const bool together = apart.chance(kAlways / 2);
  for (uint32_t g = 0; g < graphs; ++g) {
    std::vector<CapturedLane> lanes;
    const uint32_t branches = 1 + random.below(3);
    uint32_t leaders = 0;
    for (uint32_t k = 1 + random.below(4); k > 0; --k) {
      const uint32_t branch = leaders % branches;
      lanes.push_back(draw_lane(uint32_t(program.lanes.size()), branch, leaders++ < branches, random));
      const CapturedLane leader = lanes.back();
      add_lane(program, leader.operations, random, machine, plans);
      for (uint32_t c = together ? apart.below(3) : 0; c > 0; --c) {
        lanes.push_back(draw_companion(uint32_t(program.lanes.size()), leader, apart));
        add_lane(program, lanes.back().operations, apart, machine, plans);
      }
    }
    for (uint32_t r = 0; r < program.rank_count; ++r)
      program.graphs[r].push_back(GraphWriter(lanes, branches, g, random).write(program, r));
  }
}

// A branch stands at one gate, or at one block of each operation of a start kernel; and so does the tail.
uint32_t slots_of_graphs(const Program& program) {
  uint32_t slots = 0;
  for (size_t g = 0; !program.graphs.empty() && g < program.graphs[0].size(); ++g)
    for (size_t b = 0; b < program.graphs[0][g].branches.size(); ++b) {
      size_t most = 1;
      for (const auto& graphs : program.graphs) {
        const std::vector<GraphNode>& nodes = graphs[g].branches[b];
        for (size_t k = 0, end = 0; k < nodes.size(); k = end) {
          end = end_of_together(nodes, k);
          most = std::max(most, end - k);
        }
      }
      slots += uint32_t(most);
    }
  return slots;
}

}  // namespace starling::sim
