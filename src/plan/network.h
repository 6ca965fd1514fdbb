// The plans of all ranks as one network of sequential blocks and connections, and its greedy execution: the
// ground on which the verifier's stages stand.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "plan/geometry.h"
#include "plan/verify.h"
#include "wire/plan.h"

namespace starling {

// (source, destination, channel), with the one block that sends and the one that receives.
struct Link {
  std::uint32_t source;
  std::uint32_t destination;
  std::uint32_t channel;
  std::uint32_t sender = kNowhere;    // index into Network::blocks
  std::uint32_t receiver = kNowhere;

  std::string name() const;
};

struct NetworkBlock {
  std::uint32_t rank;
  std::uint32_t block;
  std::span<const Instruction> instructions;
  std::span<const Dependency> dependencies;  // of the whole rank
  std::vector<std::uint32_t> receives;       // link of each of the block's connections
  std::vector<std::uint32_t> sends;

  std::span<const std::uint32_t> receives_of(const Instruction& i) const {
    return i.receive_count == 0 ? std::span<const std::uint32_t>()
                                : std::span(receives).subspan(i.receive_first, i.receive_count);
  }
  std::span<const std::uint32_t> sends_of(const Instruction& i) const {
    return i.send_count == 0 ? std::span<const std::uint32_t>()
                             : std::span(sends).subspan(i.send_first, i.send_count);
  }
  std::span<const Dependency> dependencies_of(const Instruction& i) const {
    return dependencies.subspan(i.dependency_first, i.dependency_count);
  }
};

struct Network {
  Geometry geometry;
  std::vector<PlanView> ranks;
  std::vector<NetworkBlock> blocks;
  std::vector<std::uint32_t> first_block;  // of each rank in `blocks`; one more entry ends the last rank
  std::vector<Link> links;
  std::uint32_t largest_chunks = 1;

  // A link that only one side lists has no sender or no receiver: the structure stage reports it. A second
  // block on one side, or a connection listed twice, is reported here.
  static Network of(std::span<const PlanView> ranks, std::vector<Violation>& violations);

  std::uint32_t block_of(std::uint32_t rank, std::uint32_t block) const { return first_block[rank] + block; }
};

// One step of an execution. All tiles are alike, and no two of them touch the same bytes: one stands for all.
struct Event {
  std::uint32_t block;        // index into Network::blocks
  std::uint32_t instruction;
};

struct Execution {
  bool finished = false;
  std::vector<std::uint64_t> done;     // instructions done, per block
  std::vector<std::uint64_t> sent;     // messages, per link
  std::vector<std::uint64_t> received;
  std::uint64_t deepest = 0;           // most messages that were ever under way on one link
};

inline constexpr std::uint64_t kUnboundedSlots = ~std::uint64_t{0};

// Runs every block as far as it goes, with so many slots on each link. Links have one sender and one
// receiver, and what is enabled stays enabled, so any greedy order reaches the same end: if this one gets
// stuck, all do.
Execution execute(const Network& network, std::uint64_t slots,
                  const std::function<void(const Event&)>& visit = nullptr);

}  // namespace starling
