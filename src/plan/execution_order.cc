#include "plan/execution_order.h"

#include <algorithm>
#include <deque>

namespace starling {

ExecutionOrder::ExecutionOrder(const Network& network) {
  std::uint64_t instructions = 0;
  for (const NetworkBlock& block : network.blocks) {
    first_.push_back(instructions);
    instructions += block.instructions.size();
  }
  positions_.resize(instructions);
  events_.reserve(instructions);
  first_cause_.reserve(instructions + 1);
  std::vector<std::deque<std::uint32_t>> under_way(network.links.size());  // messages, by who sent them
  execute(network, kUnboundedSlots, [&](const Event& e) {
    const NetworkBlock& block = network.blocks[e.block];
    const Instruction& i = block.instructions[e.instruction];
    const std::uint32_t at = static_cast<std::uint32_t>(events_.size());
    events_.push_back(e);
    positions_[first_[e.block] + e.instruction] = at;
    first_cause_.push_back(causes_.size());
    for (const std::uint32_t link : block.receives_of(i)) {
      causes_.push_back(under_way[link].front());
      under_way[link].pop_front();
    }
    for (const Dependency& d : block.dependencies_of(i))
      causes_.push_back(position(network.block_of(block.rank, d.block), d.instruction));
    for (const std::uint32_t link : block.sends_of(i)) under_way[link].push_back(at);
  });
  first_cause_.push_back(causes_.size());
}

bool knows(const std::uint32_t* clock, const std::uint32_t* other, std::size_t size) {
  for (std::size_t word = 0; word < size; ++word) {
    if (other[word] > clock[word]) return false;
  }
  return true;
}

void join(std::uint32_t* clock, const std::uint32_t* other, std::size_t size) {
  for (std::size_t word = 0; word < size; ++word) clock[word] = std::max(clock[word], other[word]);
}

}  // namespace starling
