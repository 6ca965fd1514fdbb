#include "machine/sim/graphs.h"

#include <algorithm>
#include <map>
#include <span>

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
  std::map<uint32_t, bool> gates;  // lanes with held operations: a block stays for them, or none
  const auto gate_of = [&](const GraphNode& node) {
    if (node.kind != GraphNode::Kind::kHeldStart) return false;
    if (gates.count(node.lane) == 0) gates[node.lane] = driver.take_gate();
    return gates[node.lane];
  };
  const auto start_of = [&](std::span<const GraphNode> together) {
    std::vector<StreamEntering> entering;
    for (const GraphNode& node : together) {
      SimLane& lane = *lanes.at(node.lane);
      StreamTicket ticket{};
      ticket.path = kByKernel;
      ticket.gate = gate_of(node);
      entering.push_back({ticket, &lane.core(), &lane.handover(), nullptr, lane.capture(node.operation),
                          lane.spec().priority, node.lane, lane.captured(node.operation)});
    }
    return driver.captured_start(entering);
  };
  const auto gate_kernel = [&](const GraphNode& node) {
    SimLane& lane = *lanes.at(node.lane);
    return driver.captured_gate(lane.handover(), lane.captured(node.operation));
  };
  const auto take = [&](const std::vector<GraphNode>& nodes) {
    std::vector<Node> taken;
    const auto add = [&](const GraphNode& node, const Kernel& kernel) {
      taken.push_back({node, lanes.at(node.lane)->spec().calls.size(), kernel});
    };
    for (size_t k = 0, end = 0; k < nodes.size(); k = end) {
      end = end_of_together(nodes, k);
      const GraphNode& node = nodes[k];
      if (node.starts()) {
        const auto together = std::span(nodes).subspan(k, end - k);
        add(node, start_of(together));
        for (const GraphNode& one : together)
          if (one.kind == GraphNode::Kind::kHeldStart && !gate_of(one)) add(one, gate_kernel(one));
      } else if (node.kind == GraphNode::Kind::kGate) {
        add(node, gate_kernel(node));
      } else {
        Kernel kernel;
        kernel.kind = node.kind == GraphNode::Kind::kFill ? Kernel::Kind::kFill : Kernel::Kind::kCheck;
        kernel.lane = node.lane;
        add(node, kernel);
      }
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
