// Lengths: when a count divides by nothing, the last chunks of a part are shorter or empty, and in the
// v-variants every part is different. The two ends of a message, and the operands of an instruction, must
// still agree.
#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "plan/verify_stages.h"

namespace starling::stages {
namespace {

// Scratch chunks are as large as any chunk of their rank's: a class of their own. Where groups are equal and
// uncut every chunk is as large. Of unequal all_to_alls a rank knows its own counts alone, so full chunks of
// two ranks may differ: `inside` is then the rank.
constexpr std::uint64_t kFull = ~std::uint64_t{0};
// Of a sum of chunks of which neither is surely as long as the other: as long as none.
constexpr LengthClass kNoChunk{~std::uint64_t{0} - 1, 0};

LengthClass class_of(const Network& network, Parts parts, std::uint32_t rank, BufferKind buffer,
                     std::uint32_t chunk) {
  if (buffer == BufferKind::kScratch) {
    if (parts == Parts::kEqual && network.geometry.chunks_per_group == 1) return LengthClass{};
    const bool differ = parts == Parts::kUnequal && network.geometry.collective == Collective::kAllToAll;
    return {kFull, differ ? rank : 0};
  }
  return length_class(network.geometry, parts, rank, buffer, chunk);
}

std::string class_name(const LengthClass& length, Parts parts) {
  if (length.part == kFull) return "a full chunk";
  if (length == kNoChunk) return "the shortest of different parts";
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

// One execution on lengths. A scratch chunk has room for any chunk, and its instructions say how much of it
// they move: of a value that came, or was copied, as a shorter chunk, the rest is not there.
class Held {
 public:
  Held(const Network& network, Parts parts, std::vector<Violation>& violations)
      : network_(network), parts_(parts), violations_(violations), under_way_(network.links.size()) {
    for (std::uint32_t r = 0; r < network.ranks.size(); ++r) {
      storage_.emplace_back(network.geometry, r, network.ranks[r].header->scratch_chunks);
      memory_.emplace_back(storage_[r].size());
      if (!network.geometry.exists(BufferKind::kInput, r)) continue;
      for (std::uint32_t c = 0; c < network.geometry.chunks(BufferKind::kInput); ++c)
        memory_[r][storage_[r].at(BufferKind::kInput, c)] =
            class_of(network, parts, r, BufferKind::kInput, c);
    }
  }

  void run() {
    execute(network_, kUnboundedSlots, [this](const Event& e) {
      if (violations_.size() < kMaxViolations) step(e);
    });
  }

 private:
  using Length = std::optional<LengthClass>;  // none: nothing was ever there, which is the result's to refuse

  void step(const Event& e) {
    const NetworkBlock& block = network_.blocks[e.block];
    const Instruction& i = block.instructions[e.instruction];
    if (i.opcode == Opcode::nop) return;
    std::vector<Length> result(i.chunks);
    for (std::uint32_t k = 0; k < i.chunks; ++k)
      result[k] = class_of(network_, parts_, block.rank, i.size_buffer, i.size_chunk + k);
    for (const std::uint32_t link : block.receives_of(i)) {
      for (std::uint32_t k = 0; k < i.chunks; ++k)
        result[k] = shorter(result[k], under_way_[link].front()[k]);
      under_way_[link].pop_front();
    }
    if (reads_source(i.opcode)) read(block, e, i.source_buffer, i.source_chunk, result);
    if (reduces_into(i.opcode)) read(block, e, i.destination_buffer, i.destination_chunk, result);
    if (writes_destination(i.opcode)) {
      for (std::uint32_t k = 0; k < i.chunks; ++k)
        memory_[block.rank][storage_[block.rank].at(i.destination_buffer, i.destination_chunk) + k] =
            result[k];
    }
    for (const std::uint32_t link : block.sends_of(i)) under_way_[link].push_back(result);
  }

  void read(const NetworkBlock& block, const Event& e, BufferKind buffer, std::uint32_t chunk,
            std::vector<Length>& result) {
    for (std::uint32_t k = 0; k < result.size(); ++k) {
      const Length& held = memory_[block.rank][storage_[block.rank].at(buffer, chunk) + k];
      const Instruction& i = block.instructions[e.instruction];
      const LengthClass size = class_of(network_, parts_, block.rank, i.size_buffer, i.size_chunk + k);
      if (held && size.part != kFull && !covers(*held, size)) {
        violations_.push_back(
            violation_at("held_length", block, e.instruction,
                         std::string(kOpcodeTable[static_cast<std::uint32_t>(i.opcode)].name) + " reads " +
                             operand_name(buffer, chunk + k, 1) + " as long as " + class_name(size, parts_) +
                             ", but what lies there is as long as " + class_name(*held, parts_)));
        return;
      }
      result[k] = shorter(result[k], held);
    }
  }

  static bool covers(const LengthClass& a, const LengthClass& b) { return a.part == kFull || a.covers(b); }
  static Length shorter(const Length& a, const Length& b) {
    if (!a || !b) return a ? a : b;
    if (covers(*a, *b)) return b;
    return covers(*b, *a) ? a : kNoChunk;
  }

  const Network& network_;
  const Parts parts_;
  std::vector<Violation>& violations_;
  std::vector<Storage> storage_;
  std::vector<std::vector<Length>> memory_;  // per rank, by chunk
  std::vector<std::deque<std::vector<Length>>> under_way_;  // per link
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

void check_held_lengths(const Network& network, Parts parts, std::vector<Violation>& violations) {
  // Without scratch every operand is as long as its instruction says, so nothing is ever shorter than its
  // place.
  const auto has_scratch = [](const PlanView& view) { return view.header->scratch_chunks != 0; };
  if (std::any_of(network.ranks.begin(), network.ranks.end(), has_scratch))
    Held(network, parts, violations).run();
}

}  // namespace starling::stages
