// Puts: both ends of every message agree whether its sender writes it into the receiver's slice, and a
// connection has few that are, for their places are told when a tile begins.
#include <string>
#include <vector>

#include "plan/verify_stages.h"

namespace starling::stages {
namespace {

// One end of a message.
struct End {
  std::uint32_t block;  // index into Network::blocks
  std::uint32_t instruction;
  bool put;
};

std::string describe(const Network& network, const End& end) {
  const NetworkBlock& block = network.blocks[end.block];
  const Opcode opcode = block.instructions[end.instruction].opcode;
  return "rank " + std::to_string(block.rank) + " block " + std::to_string(block.block) + " instruction " +
         std::to_string(end.instruction) + " (" + kOpcodeTable[static_cast<std::uint32_t>(opcode)].name + ")";
}

}  // namespace

void check_puts(const Network& network, std::vector<Violation>& violations) {
  if (network.ranks[0].header->protocol != Protocol::kPull) return;
  std::vector<std::vector<End>> sent(network.links.size());
  std::vector<std::vector<End>> received(network.links.size());
  for (std::uint32_t b = 0; b < network.blocks.size(); ++b) {
    const NetworkBlock& block = network.blocks[b];
    for (std::uint32_t index = 0; index < block.instructions.size(); ++index) {
      const Instruction& i = block.instructions[index];
      const bool put = (i.flags & kPut) != 0;
      for (const std::uint32_t link : block.sends_of(i)) sent[link].push_back({b, index, put});
      for (const std::uint32_t link : block.receives_of(i))
        received[link].push_back({b, index, put && i.opcode == Opcode::recv});
    }
  }
  for (std::size_t link = 0; link < network.links.size() && violations.size() < kMaxViolations; ++link) {
    std::uint32_t lent = 0;
    for (std::size_t k = 0; k < sent[link].size(); ++k) {
      const End& from = sent[link][k];
      const End& to = received[link][k];
      const NetworkBlock& receiver = network.blocks[to.block];
      if (from.put != to.put) {
        violations.push_back(
            violation_at("put", receiver, to.instruction,
                         describe(network, from) + (from.put ? " puts" : " does not put") + " message " +
                             std::to_string(k) + " of connection " + network.links[link].name() + ", which " +
                             describe(network, to) + (to.put ? " wants put" : " does not want put")));
      }
      if (to.put && ++lent == kMaxLent + 1) {
        violations.push_back(
            violation_at("put_count", receiver, to.instruction,
                         describe(network, to) + " receives one more message that is put on connection " +
                             network.links[link].name() + " than the " + std::to_string(kMaxLent) +
                             " whose places can be told when a tile begins"));
      }
    }
  }
}

}  // namespace starling::stages
