// Deadlock: one greedy run decides it for a number of slots (plan/network.h says why), and the least number
// that works is found by trying. One tile decides for all: every connection is empty again after a tile, and
// tiles of which some messages are empty only leave out steps of a schedule that works.
#include <string>

#include "plan/verify_stages.h"
#include "wire/connector.h"

namespace starling::stages {
namespace {

std::string what_it_waits_for(const Network& network, const Execution& run, const NetworkBlock& block,
                              const Instruction& i, std::uint64_t slots) {
  for (const std::uint32_t link : block.receives_of(i)) {
    if (run.sent[link] == run.received[link]) {
      return "a message " + std::to_string(run.received[link]) + " on connection " +
             network.links[link].name();
    }
  }
  for (const std::uint32_t link : block.sends_of(i)) {
    if (run.sent[link] - run.received[link] >= slots) {
      return "one of the " + std::to_string(slots) + " slots of connection " + network.links[link].name();
    }
  }
  std::string text = "an instruction of another block:";
  for (const Dependency& d : block.dependencies_of(i))
    text += " " + std::to_string(d.block) + "." + std::to_string(d.instruction);
  return text;
}

void report_stuck(const Network& network, const Execution& run, std::uint64_t slots,
                  std::vector<Violation>& violations) {
  const std::string with =
      slots == kUnboundedSlots ? "with any number of slots" : "even with " + std::to_string(slots) + " slots";
  for (std::uint32_t b = 0; b < network.blocks.size() && violations.size() < kMaxViolations; ++b) {
    const NetworkBlock& block = network.blocks[b];
    if (run.done[b] == block.instructions.size()) continue;
    const std::uint32_t index = static_cast<std::uint32_t>(run.done[b]);
    const Instruction& i = block.instructions[index];
    violations.push_back(violation_at("deadlock", block, index,
                                      std::string(kOpcodeTable[static_cast<std::uint32_t>(i.opcode)].name) +
                                          " waits for ever, " + with + ", for " +
                                          what_it_waits_for(network, run, block, i, slots)));
  }
}

}  // namespace

std::uint32_t find_minimum_slots(const Network& network, std::vector<Violation>& violations) {
  const Execution unbounded = execute(network, kUnboundedSlots);
  if (!unbounded.finished) {
    report_stuck(network, unbounded, kUnboundedSlots, violations);
    return 0;
  }
  for (std::uint32_t slots = 1; slots <= kMaxCredits; ++slots) {
    if (execute(network, slots).finished) return slots;
  }
  report_stuck(network, execute(network, kMaxCredits), kMaxCredits, violations);
  return 0;
}

}  // namespace starling::stages
