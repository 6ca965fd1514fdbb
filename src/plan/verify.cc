#include "plan/verify.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "plan/network.h"
#include "plan/verify_stages.h"

namespace starling {
namespace stages {

Storage::Storage(const Geometry& geometry, std::uint32_t rank, std::uint32_t scratch_chunks) {
  const std::uint64_t input_chunks = geometry.chunks(BufferKind::kInput);
  const std::uint64_t output_chunks = geometry.chunks(BufferKind::kOutput);
  if (geometry.in_place) {
    const Geometry::Overlap overlap = geometry.overlap(rank);
    input_first_ = overlap.input_first;
    output_first_ = overlap.output_first;
    scratch_first_ = std::max(input_first_ + input_chunks, output_first_ + output_chunks);
  } else {
    output_first_ = input_chunks;
    scratch_first_ = input_chunks + output_chunks;
  }
  size_ = scratch_first_ + scratch_chunks;
}

std::uint64_t Storage::at(BufferKind buffer, std::uint64_t chunk) const {
  switch (buffer) {
    case BufferKind::kInput: return input_first_ + chunk;
    case BufferKind::kOutput: return output_first_ + chunk;
    case BufferKind::kScratch: return scratch_first_ + chunk;
    case BufferKind::kNone: break;
  }
  STARLING_ASSERT(false, "storage of an operand that is not there");
}

std::string operand_name(BufferKind buffer, std::uint64_t chunk, std::uint64_t chunks) {
  std::string text(name_of(buffer));
  text += "[" + std::to_string(chunk);
  if (chunks != 1) text += ":" + std::to_string(chunk + chunks);
  return text + "]";
}

Violation violation_at(const char* rule, const NetworkBlock& block, std::uint32_t instruction,
                       std::string text) {
  return {.rule = rule,
          .rank = block.rank,
          .block = block.block,
          .instruction = instruction,
          .text = std::move(text)};
}

}  // namespace stages

namespace {

// Messages of a tile that are put on one connection, at most.
std::uint32_t landings(const PlanView& view) {
  std::uint32_t most = 0;
  for (std::uint32_t b = 0; b < view.header->block_count; ++b) {
    const BlockPlan& block = view.blocks()[b];
    std::vector<std::uint32_t> places(block.receive_count, 0);
    for (std::uint32_t n = 0; n < block.instruction_count; ++n) {
      const Instruction& i = view.instructions()[block.instruction_first + n];
      if ((i.flags & kPut) != 0 && i.opcode == Opcode::recv) most = std::max(most, ++places[i.receive_first]);
    }
  }
  return most;
}

// Is each chunk of scratch one block's? What it reads there it has written in the same tile, as in the one
// that is proved. And nobody reads there from afar, who may be late by a tile.
bool has_tile_scratch(const Network& network) {
  if (network.ranks[0].header->protocol != Protocol::kPull) return false;
  bool any = false;  // message that is put there
  for (const PlanView& view : network.ranks) {
    std::vector<std::uint32_t> owners(view.header->scratch_chunks, kNowhere);
    for (std::uint32_t b = 0; b < view.header->block_count; ++b) {
      const BlockPlan& block = view.blocks()[b];
      for (std::uint32_t n = 0; n < block.instruction_count; ++n) {
        const Instruction& i = view.instructions()[block.instruction_first + n];
        if (i.size_buffer == BufferKind::kScratch) return false;
        any |=
            (i.flags & kPut) != 0 && i.opcode == Opcode::recv && i.destination_buffer == BufferKind::kScratch;
        const BufferKind named = writes_destination(i.opcode) ? i.destination_buffer : i.source_buffer;
        if (sends(i.opcode) && (i.flags & kPut) == 0 && named == BufferKind::kScratch) return false;
        for (const auto& [kind, first] : {std::pair(i.source_buffer, i.source_chunk),
                                          std::pair(i.destination_buffer, i.destination_chunk)})
          for (std::uint32_t k = 0; kind == BufferKind::kScratch && k < i.chunks; ++k) {
            std::uint32_t& owner = owners[first + k];
            if (owner != kNowhere && owner != b) return false;
            owner = b;
          }
      }
    }
  }
  return any;
}

// As many tiles as a connection has words for, up to two.
std::uint8_t scratch_tiles(const Network& network) {
  std::uint32_t most = 0;
  for (const PlanView& view : network.ranks) most = std::max(most, landings(view));
  return 2 * most <= kMaxLent ? 2 : 1;
}

// Blocks that share nothing: no channel, no dependency, no scratch that is not each block's own.
bool is_canonical(const Network& network, bool tile_scratch) {
  for (const PlanView& view : network.ranks) {
    if (view.header->dependency_count != 0 || (view.header->scratch_chunks != 0 && !tile_scratch))
      return false;
  }
  for (const Link& link : network.links) {
    if (network.blocks[link.sender].block != link.channel ||
        network.blocks[link.receiver].block != link.channel)
      return false;
  }
  return true;
}

PlanFacts facts_of(const Network& network) {
  PlanFacts facts;
  for (const Link& link : network.links) {
    facts.channel_count =
        std::max<std::uint16_t>(facts.channel_count, static_cast<std::uint16_t>(link.channel + 1));
  }
  facts.largest_chunks = static_cast<std::uint16_t>(network.largest_chunks);
  if (has_tile_scratch(network)) facts.tile_scratch = scratch_tiles(network);
  facts.canonical = is_canonical(network, facts.tile_scratch != 0);
  return facts;
}

// Right for unequal parts if it can be, else for equal ones alone.
Parts check_lengths(const Network& network, std::vector<Violation>& violations) {
  std::vector<Violation> unequal;
  stages::check_lengths(network, Parts::kUnequal, unequal);
  if (unequal.empty()) return Parts::kUnequal;
  stages::check_lengths(network, Parts::kEqual, violations);
  return Parts::kEqual;
}

Verdict judge(std::span<const PlanView> ranks, const Postcondition* postcondition) {
  Verdict verdict;
  std::vector<Violation>& violations = verdict.violations;
  stages::check_headers(ranks, violations);
  if (!violations.empty()) return verdict;
  stages::check_instructions(ranks, violations);
  if (!violations.empty()) return verdict;
  if (postcondition != nullptr)
    stages::check_postcondition(Geometry::of(*ranks[0].header), *postcondition, violations);
  if (!violations.empty()) return verdict;
  const Network network = Network::of(ranks, violations);
  if (violations.empty()) stages::check_links(network, violations);
  if (violations.empty()) stages::check_puts(network, violations);
  if (!violations.empty()) return verdict;
  verdict.facts = facts_of(network);
  Parts parts = check_lengths(network, violations);
  if (!violations.empty()) return verdict;
  verdict.facts.minimum_slots = static_cast<std::uint16_t>(stages::find_minimum_slots(network, violations));
  if (!violations.empty()) return verdict;
  if (parts == Parts::kUnequal) {
    // Blocks ordered only by messages of another part are ordered only while no part is empty.
    std::vector<Violation> unequal;
    stages::check_races(network, Parts::kUnequal, unequal);
    stages::check_pulls(network, Parts::kUnequal, unequal);
    if (unequal.empty()) stages::check_held_lengths(network, Parts::kUnequal, unequal);
    if (!unequal.empty()) parts = Parts::kEqual;
  }
  if (parts == Parts::kEqual) {
    stages::check_races(network, Parts::kEqual, violations);
    stages::check_pulls(network, Parts::kEqual, violations);
    if (violations.empty()) stages::check_held_lengths(network, Parts::kEqual, violations);
  }
  if (!violations.empty()) return verdict;
  verdict.facts.uniform_only = parts == Parts::kEqual;
  stages::check_result(network, postcondition, violations);
  return verdict;
}

}  // namespace

std::string Violation::describe() const {
  std::string place;
  const auto add = [&](const char* word, std::uint32_t index) {
    if (index != kNowhere)
      place += (place.empty() ? "" : ", ") + std::string(word) + " " + std::to_string(index);
  };
  add("rank", rank);
  add("block", block);
  add("instruction", instruction);
  return (place.empty() ? "" : place + ": ") + text + " (rule " + rule + ")";
}

Verdict verify(std::span<const PlanView> ranks, const Postcondition* postcondition) {
  STARLING_ASSERT(!ranks.empty(), "verify() needs the part of every rank");
  Verdict verdict = judge(ranks, postcondition);
  if (verdict.violations.size() > kMaxViolations) verdict.violations.resize(kMaxViolations);
  return verdict;
}

}  // namespace starling
