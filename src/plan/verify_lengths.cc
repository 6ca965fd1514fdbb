// Lengths: when a count divides by nothing, the last chunks of a part are shorter or empty, and in the
// v-variants every part is different. The two ends of a message, and the operands of an instruction, must
// still agree.
#include <string>
#include <vector>

#include "plan/verify_stages.h"

namespace starling::stages {
namespace {

// Scratch chunks are as large as any chunk: a class of their own. Where groups are equal and uncut every
// chunk is as large.
constexpr LengthClass kFullChunk{~std::uint64_t{0}, 0};

LengthClass class_of(const Network& network, Parts parts, std::uint32_t rank, BufferKind buffer,
                     std::uint32_t chunk) {
  if (buffer == BufferKind::kScratch) {
    return parts == Parts::kEqual && network.geometry.chunks_per_group == 1 ? LengthClass{} : kFullChunk;
  }
  return length_class(network.geometry, parts, rank, buffer, chunk);
}

std::string class_name(const LengthClass& length, Parts parts) {
  if (length == kFullChunk) return "a full chunk";
  std::string text = "chunk " + std::to_string(length.inside);
  if (parts == Parts::kUnequal) text += " of part " + std::to_string(length.part);
  return text;
}

struct Operand {
  const char* role;
  BufferKind buffer;
  std::uint32_t chunk;
};

std::vector<Operand> local_operands(const Instruction& i) {
  std::vector<Operand> operands;
  if (reads_source(i.opcode)) operands.push_back({"source", i.source_buffer, i.source_chunk});
  if (writes_destination(i.opcode))
    operands.push_back({"destination", i.destination_buffer, i.destination_chunk});
  return operands;
}

class Lengths {
 public:
  Lengths(const Network& network, Parts parts, std::vector<Violation>& violations)
      : network_(network), parts_(parts), violations_(violations) {}

  void check_operands(const NetworkBlock& block, std::uint32_t index) {
    const Instruction& i = block.instructions[index];
    for (const Operand& operand : local_operands(i)) {
      if (operand.buffer == BufferKind::kScratch) continue;  // room for any chunk
      for (std::uint32_t k = 0; k < i.chunks; ++k) {
        const LengthClass wanted = class_of(network_, parts_, block.rank, i.size_buffer, i.size_chunk + k);
        const LengthClass is = class_of(network_, parts_, block.rank, operand.buffer, operand.chunk + k);
        if (wanted == is) continue;
        add(block, index, "operand_length",
            std::string("has the ") + operand.role + " " +
                operand_name(operand.buffer, operand.chunk, i.chunks) + ", as long as " +
                class_name(is, parts_) + ", but takes its length from " + size_name(i) + ", as long as " +
                class_name(wanted, parts_));
        break;
      }
    }
  }

  void check_message(const NetworkBlock& sender, std::uint32_t sent_by, const NetworkBlock& receiver,
                     std::uint32_t read_by) {
    const Instruction& out = sender.instructions[sent_by];
    const Instruction& in = receiver.instructions[read_by];
    bool same = out.chunks == in.chunks;
    for (std::uint32_t k = 0; same && k < out.chunks; ++k) {
      same = class_of(network_, parts_, sender.rank, out.size_buffer, out.size_chunk + k) ==
             class_of(network_, parts_, receiver.rank, in.size_buffer, in.size_chunk + k);
    }
    if (same) return;
    add(receiver, read_by, "message_length",
        "receives a message as long as its " + size_name(in) + ", which rank " + std::to_string(sender.rank) +
            " block " + std::to_string(sender.block) + " instruction " + std::to_string(sent_by) +
            " sends as long as its " + size_name(out));
  }

 private:
  static std::string size_name(const Instruction& i) {
    return operand_name(i.size_buffer, i.size_chunk, i.chunks);
  }

  void add(const NetworkBlock& block, std::uint32_t index, const char* rule, const std::string& text) {
    const Opcode opcode = block.instructions[index].opcode;
    violations_.push_back(violation_at(
        rule, block, index, std::string(kOpcodeTable[static_cast<std::uint32_t>(opcode)].name) + " " + text));
  }

  const Network& network_;
  const Parts parts_;
  std::vector<Violation>& violations_;
};

struct Place {
  std::uint32_t block;
  std::uint32_t instruction;
};

}  // namespace

void check_lengths(const Network& network, Parts parts, std::vector<Violation>& violations) {
  Lengths lengths(network, parts, violations);
  std::vector<std::vector<Place>> sent(network.links.size());
  std::vector<std::vector<Place>> received(network.links.size());
  for (std::uint32_t b = 0; b < network.blocks.size(); ++b) {
    const NetworkBlock& block = network.blocks[b];
    for (std::uint32_t index = 0; index < block.instructions.size(); ++index) {
      lengths.check_operands(block, index);
      for (const std::uint32_t link : block.sends_of(block.instructions[index]))
        sent[link].push_back({b, index});
      for (const std::uint32_t link : block.receives_of(block.instructions[index]))
        received[link].push_back({b, index});
    }
  }
  for (std::size_t link = 0; link < network.links.size() && violations.size() < kMaxViolations; ++link) {
    for (std::size_t k = 0; k < sent[link].size(); ++k) {
      const Place& from = sent[link][k];
      const Place& to = received[link][k];
      lengths.check_message(network.blocks[from.block], from.instruction, network.blocks[to.block],
                            to.instruction);
    }
  }
}

}  // namespace starling::stages
