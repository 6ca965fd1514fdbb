// The graphs of one simulated rank: captured once, replayed again and again. What a replay puts into streams
// is what CUDA keeps of a capture: kernels with the arguments of that time.
//
//   stream     fork ──────────────────────────────▶ join, tail      (one branch: all of it in the stream)
//   branches     └─▶ fill, start, gate, check ... ──┘                 each in a stream of its own
#pragma once
#include <cstdint>
#include <vector>

#include "machine/sim/core.h"
#include "machine/sim/gpu.h"
#include "machine/sim/lane_table.h"
#include "machine/sim/program.h"

namespace starling::sim {

class RankGraphs {
 public:
  // `first_stream`: of those that branches have.
  void build(World& world, const std::vector<Graph>& graphs, uint32_t first_stream);
  // Streams that the branches need.
  static uint32_t branch_streams(const std::vector<Graph>& graphs);

  bool is_captured(uint32_t graph) const { return graphs_[graph].captured; }
  // Under the host's lock; its lanes are open.
  void capture(uint32_t graph, const LaneTable& lanes, StreamDriver& driver);
  // Without it. May stand in the driver.
  void replay(uint32_t graph, Gpu& gpu);
  std::vector<uint32_t> lanes_of(uint32_t graph) const;

 private:
  struct Node {
    GraphNode what;
    uint64_t operations;  // that the lane has in a replay
    Kernel kernel;
  };
  struct Captured {
    bool captured = false;
    uint32_t first_stream = 0;
    uint64_t replays = 0;
    uint64_t* forked = nullptr;  // replays that have come so far; writer: the graph's stream
    uint64_t* joined = nullptr;  // [branches]: likewise, the branch's
    std::vector<std::vector<Node>> branches;
    std::vector<Node> tail;
  };
  void put(const std::vector<Node>& nodes, uint32_t stream, uint64_t replay, Gpu& gpu);

  const std::vector<Graph>* of_ = nullptr;
  std::vector<Captured> graphs_;
};

}  // namespace starling::sim
