#include "machine/sim/graphs.h"

#include <algorithm>

namespace starling::sim {

void RankGraphs::build(World& world, const std::vector<Graph>& graphs, uint32_t first_stream) {
  of_ = &graphs;
  graphs_.assign(graphs.size(), {});
  for (size_t g = 0; g < graphs.size(); ++g) {
    graphs_[g].first_stream = first_stream;
    if (graphs[g].branches.size() < 2) continue;
    first_stream += uint32_t(graphs[g].branches.size());
    graphs_[g].forked = world.memory.region().make<uint64_t>();
    graphs_[g].joined = world.memory.region().make<uint64_t>(graphs[g].branches.size());
  }
}

uint32_t RankGraphs::branch_streams(const std::vector<Graph>& graphs) {
  uint32_t count = 0;
  for (const Graph& graph : graphs)
    if (graph.branches.size() > 1) count += uint32_t(graph.branches.size());
  return count;
}

std::vector<uint32_t> RankGraphs::lanes_of(uint32_t graph) const {
  std::vector<uint32_t> lanes;
  for (const auto& branch : (*of_)[graph].branches)
    for (const GraphNode& node : branch) lanes.push_back(node.lane);
  std::sort(lanes.begin(), lanes.end());
  lanes.erase(std::unique(lanes.begin(), lanes.end()), lanes.end());
  return lanes;
}

void RankGraphs::capture(uint32_t graph, const LaneTable& lanes, StreamDriver& driver) {
  Captured& captured = graphs_[graph];
  captured.captured = true;
  const auto kernel_of = [&](const GraphNode& node, bool gate) -> Kernel {
    SimLane& lane = *lanes.at(node.lane);
    uint64_t* number = lane.captured(node.operation);
    Kernel kernel;
    switch (node.kind) {
      case GraphNode::Kind::kStart:
      case GraphNode::Kind::kHeldStart:
        return driver.captured_start(lane.core(), lane.handover(), lane.capture(node.operation),
                                     lane.spec().priority, gate, number);
      case GraphNode::Kind::kGate: return driver.captured_gate(lane.handover(), number);
      case GraphNode::Kind::kFill: kernel.kind = Kernel::Kind::kFill; break;
      case GraphNode::Kind::kCheck: kernel.kind = Kernel::Kind::kCheck; break;
    }
    kernel.lane = node.lane;
    return kernel;
  };
  std::vector<uint32_t> gates, gateless;  // lanes whose held operations have a block that stays, or none
  const auto take = [&](const std::vector<GraphNode>& nodes) {
    std::vector<Node> taken;
    const auto add = [&](const GraphNode& node, bool gate) {
      taken.push_back({node, lanes.at(node.lane)->spec().calls.size(), kernel_of(node, gate)});
    };
    for (const GraphNode& node : nodes) {
      const bool held = node.kind == GraphNode::Kind::kHeldStart;
      const auto has = [&](const auto& list) {
        return std::find(list.begin(), list.end(), node.lane) != list.end();
      };
      if (held && !has(gates) && !has(gateless)) (driver.take_gate() ? gates : gateless).push_back(node.lane);
      add(node, held && has(gates));
      if (held && !has(gates)) add({GraphNode::Kind::kGate, node.lane, node.operation}, false);
    }
    return taken;
  };
  for (const auto& branch : (*of_)[graph].branches) captured.branches.push_back(take(branch));
  captured.tail = take((*of_)[graph].tail);
}

void RankGraphs::replay(uint32_t graph, Gpu& gpu) {
  Captured& captured = graphs_[graph];
  const uint32_t stream = (*of_)[graph].stream;
  const uint64_t number = captured.replays++;
  const auto branches = uint32_t(captured.branches.size());
  if (branches > 1) gpu.put_write(stream, captured.forked, number + 1);
  for (uint32_t b = 0; b < branches; ++b) {
    const uint32_t own = branches > 1 ? captured.first_stream + b : stream;
    if (branches > 1) gpu.put_wait(own, captured.forked, number + 1);
    put(captured.branches[b], own, number, gpu);
    if (branches == 1) continue;
    gpu.put_write(own, &captured.joined[b], number + 1);
    gpu.put_wait(stream, &captured.joined[b], number + 1);
  }
  put(captured.tail, stream, number, gpu);
}

void RankGraphs::put(const std::vector<Node>& nodes, uint32_t stream, uint64_t replay, Gpu& gpu) {
  for (const Node& node : nodes) {
    Kernel kernel = node.kernel;
    kernel.index = replay * node.operations + node.what.operation;
    gpu.put(stream, kernel, false);
  }
}

}  // namespace starling::sim
