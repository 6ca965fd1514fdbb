// What the ranks of a simulation do: lanes, and for each rank the order of its calls.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "machine/sim/options.h"
#include "machine/sim/random.h"
#include "plan/cache.h"
#include "plan/plan.h"

namespace starling::sim {

// A group of a rank's input.
struct GroupSource {
  uint32_t rank;
  uint32_t group;
};

// What an operation of a lane does.
struct CallSpec {
  std::shared_ptr<const Plan> plan;
  DataType data_type = DataType::kInt32;
  ReduceOp reduce_op = ReduceOp::kSum;
  double scalar = 1;   // premul_sum: see factor()
  uint64_t count = 0;  // elements of a group of its buffers
  uint32_t pieces =
      0;  // of a broadcast by copies: each rank passes on so many to the next; 0: the root sends all
  // Of a custom collective: the groups that are summed into each group of each rank's output, rank by rank;
  // an empty list: anything may be there, and the rank's output is not looked at.
  std::vector<std::vector<GroupSource>> origins{};

  // premul_sum: every rank may have a factor of its own.
  double factor(uint32_t rank) const { return rank % 2 ? 1 / scalar : scalar; }
};

struct LaneSpec {
  std::vector<uint32_t> ranks;  // of its group; the position is the rank inside the lane
  std::vector<CallSpec> calls;  // what its operations do, in turn
  int16_t priority = 0;
  // Its operations are those that one graph captured, one a call of `calls`: each replay runs them all.
  bool captured = false;
  // Copy engines move what its operations say, whatever their plans are (device/copy_host.h).
  bool copies = false;

  const CallSpec& call(uint64_t index) const { return calls[index % calls.size()]; }
  // The widest plan's.
  uint32_t block_count() const;
  bool has(Protocol protocol) const;
  // Some of its ranks are on different hosts.
  bool crosses_hosts(const Options& machine) const;
};

enum class StepKind : uint8_t {
  kSubmit,  // the next operation of `lane`
  kSynchronize,  // the device: nothing is launched until what runs has left
  kWait,  // for all that the rank submitted
  kPause,  // `ns`
  // In programs with streams (stream_program.cc):
  kStart,  // a kernel that fills the input, the next operation of `lane`; held: a kernel that checks it
  kPrepared,  // the same on an input that the host filled, held
  kStreamWait,  // `stream` waits for the newest operation of `lane`; then a kernel that checks it
  kCompute,  // a kernel of `blocks` blocks that takes `ns`
  kCopyBack,  // waits for `stream` inside of the driver: a copy to pageable memory
  kLoadKernels,  // waits for the GPU inside of the driver: a library loads its kernels
  kReplay,  // of the rank's graph `lane`
};

// A kernel of a graph, for captured operation `operation` of a lane.
struct GraphNode {
  enum class Kind : uint8_t { kFill, kStart, kHeldStart, kGate, kCheck };
  Kind kind;
  uint32_t lane;
  uint32_t operation;
  uint32_t together = 0;  // starts in a row with one number begin in one kernel

  bool starts() const { return kind == Kind::kStart || kind == Kind::kHeldStart; }
};

// Behind the node, and those that begin with it.
inline size_t end_of_together(const std::vector<GraphNode>& nodes, size_t node) {
  size_t end = node + 1;
  while (nodes[node].together != 0 && end < nodes.size() && nodes[end].together == nodes[node].together)
    ++end;
  return end;
}

// As one rank captured it. Its branches run beside each other, and then the tail.
struct Graph {
  uint32_t stream = 0;  // into which it is replayed; the same on all ranks
  std::vector<std::vector<GraphNode>> branches;
  std::vector<GraphNode> tail;
};

struct Step {
  StepKind kind;
  uint32_t lane = 0;
  uint64_t ns = 0;
  uint32_t stream = 0;
  uint32_t held = 0;
  uint32_t blocks = 1;
  bool differs = false;  // of a lane of copies: the rank means something else than the others
  uint32_t together =
      0;  // steps in a row that start operations of one stream, with one number: they begin together

  bool names_lane() const { return submits() || kind == StepKind::kStreamWait; }
  bool submits() const {
    return kind == StepKind::kSubmit || kind == StepKind::kStart || kind == StepKind::kPrepared;
  }
};

struct Program {
  std::string name;
  uint32_t rank_count = 0;
  uint32_t streams = 0;  // of each rank; 0: all is submitted from the CPU
  uint32_t operation_streams = 0;  // bits: those of them that nothing but operations is put into
  std::vector<LaneSpec> lanes;
  std::vector<std::vector<Step>> steps;  // of each rank
  std::vector<std::vector<Graph>> graphs{};  // likewise

  bool has_copies() const;
  // Operations of a lane that a rank has under way at most.
  uint32_t depth(uint32_t lane) const;
};

// The programs of DFCCL §6.1: eight ranks, each in an order of its own, invoke eight all-reduces of 256 B to
// 1 MB; the second one synchronizes the device between any two of them.
struct DfcclOptions {
  uint32_t program = 1;
  uint32_t iterations = 200;
  uint32_t divisor = 1;  // of all counts
  uint32_t ranks = 8;
  uint32_t collectives = 8;
  uint32_t disorder = kAlways;  // chance that a rank shuffles an iteration at all
};
Program dfccl_program(const DfcclOptions& options, uint64_t seed, const Options& machine, PlanCache& plans);

// A lane of any kind among some of the ranks.
LaneSpec random_lane(Random& random, uint32_t rank_count, const Options& machine, PlanCache& plans);
// Groups, collectives, algorithms, types, sizes and orders of every kind.
Program random_program(uint64_t seed, const Options& machine, PlanCache& plans);

// A machine with everything that can go wrong, drawn from the seed.
Options random_options(uint64_t seed);

}  // namespace starling::sim
