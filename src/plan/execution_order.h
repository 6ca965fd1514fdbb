// One execution of a network, and what each instruction in it waits for: vector clocks (verify_races.cc,
// verify_pulls.cc) run along it once for each question that they answer.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "plan/network.h"

namespace starling {

class ExecutionOrder {
 public:
  // The network finishes if its links have slots enough.
  explicit ExecutionOrder(const Network& network);

  std::span<const Event> events() const { return events_; }
  std::size_t size() const { return events_.size(); }
  // Where an instruction stands among the events; `block` is an index into Network::blocks.
  std::uint32_t position(std::uint32_t block, std::uint32_t instruction) const {
    return positions_[first_[block] + instruction];
  }
  // Positions of those that an event waits for, besides its block's instruction before it: who sends it
  // messages, in the order of NetworkBlock::receives_of(), then its dependencies.
  std::span<const std::uint32_t> causes(std::uint32_t position) const {
    return std::span(causes_).subspan(first_cause_[position],
                                      first_cause_[position + 1] - first_cause_[position]);
  }

 private:
  std::vector<Event> events_;
  std::vector<std::uint64_t> first_;      // of each block, in positions_
  std::vector<std::uint32_t> positions_;  // by block and instruction
  std::vector<std::uint64_t> first_cause_;
  std::vector<std::uint32_t> causes_;
};

// Clocks of so many words: whether one has all that the other tells, and what comes of both.
bool knows(const std::uint32_t* clock, const std::uint32_t* other, std::size_t size);
void join(std::uint32_t* clock, const std::uint32_t* other, std::size_t size);

}  // namespace starling
