// Plan -> text (plan/text.h).
#include <string>

#include "plan/geometry.h"
#include "plan/text.h"

namespace starling {
namespace {

std::string slice(BufferKind buffer, std::uint32_t chunk, std::uint32_t chunks) {
  std::string text(name_of(buffer));
  text += "[" + std::to_string(chunk);
  if (chunks != 1) text += ":" + std::to_string(std::uint64_t{chunk} + chunks);
  return text + "]";
}

std::string end_of(char direction, const Connection& c) {
  return std::string(" ") + direction + std::to_string(c.peer) + "." + std::to_string(c.channel);
}

// Sources in the order in which they are reduced.
std::string sources(const PlanView& view, const BlockPlan& block, const Instruction& i) {
  std::string text;
  for (std::uint32_t k = 0; k <= i.receive_count; ++k) {
    if (reads_source(i.opcode) && k == i.local_position)
      text += " " + slice(i.source_buffer, i.source_chunk, i.chunks);
    if (k < i.receive_count)
      text += end_of('<', view.connections()[block.receive_first + i.receive_first + k]);
  }
  return text;
}

std::string destinations(const PlanView& view, const BlockPlan& block, const Instruction& i) {
  std::string text;
  if (writes_destination(i.opcode)) text += " " + slice(i.destination_buffer, i.destination_chunk, i.chunks);
  for (std::uint32_t k = 0; k < i.send_count; ++k) {
    text += end_of('>', view.connections()[block.send_first + i.send_first + k]);
  }
  return text.empty() ? text : " ->" + text;
}

std::string after(const PlanView& view, const Instruction& i) {
  std::string text;
  for (std::uint32_t d = 0; d < i.dependency_count; ++d) {
    const Dependency& on = view.dependencies()[i.dependency_first + d];
    text += (d == 0 ? " after " : " ") + std::to_string(on.block) + "." + std::to_string(on.instruction);
  }
  return text;
}

void print_block(const PlanView& view, std::uint32_t b, std::string& text) {
  const BlockPlan& block = view.blocks()[b];
  text += "  block " + std::to_string(b) + "\n";
  for (std::uint32_t index = 0; index < block.instruction_count; ++index) {
    const Instruction& i = view.instructions()[block.instruction_first + index];
    text += "    " + std::to_string(index) + " " + kOpcodeTable[static_cast<std::uint32_t>(i.opcode)].name;
    text += sources(view, block, i) + destinations(view, block, i);
    text += " size " + slice(i.size_buffer, i.size_chunk, i.chunks);
    if ((i.flags & kFinal) != 0) text += " final";
    if ((i.flags & kPut) != 0) text += " put";
    text += after(view, i) + "\n";
  }
}

std::string holds(const Holding& holding) {
  std::string text = "holds " + std::to_string(holding.rank) + " " +
                     slice(BufferKind::kOutput, holding.chunk, holding.chunks);
  for (const Term& term : holding.terms) {
    text +=
        " " + (term.rank == kEveryRank ? "*" : std::to_string(term.rank)) + "." + std::to_string(term.chunk);
  }
  return text + "\n";
}

}  // namespace

std::string to_text(const Plan& plan) {
  const PlanHeader& header = *plan.header(0);
  std::string text = "starling-plan " + std::to_string(plan.postcondition() ? kPlanTextVersion : 1) + "\n";
  const auto field = [&text](const char* name, const std::string& value) {
    text += std::string(name) + " " + value + "\n";
  };
  field("name", plan.name());
  field("collective", std::string(traits_of(header.collective).name));
  field("ranks", std::to_string(header.rank_count));
  field("root", std::to_string(header.root));
  field("in_place", std::to_string(header.in_place));
  if (header.protocol != Protocol::kSlots) field("protocol", std::string(name_of(header.protocol)));
  if (header.tile_bytes != 0) field("tile", std::to_string(header.tile_bytes));
  field("chunks_per_group", std::to_string(header.chunks_per_group));
  field("groups", std::to_string(header.input_groups) + " " + std::to_string(header.output_groups));
  if (plan.postcondition()) {
    for (const Holding& holding : *plan.postcondition()) text += holds(holding);
  }
  for (std::uint32_t rank = 0; rank < plan.rank_count(); ++rank) {
    const PlanView view = plan.view(rank);
    text += "rank " + std::to_string(rank) + " scratch " + std::to_string(view.header->scratch_chunks) + "\n";
    for (std::uint32_t b = 0; b < view.header->block_count; ++b) print_block(view, b, text);
  }
  return text;
}

}  // namespace starling
