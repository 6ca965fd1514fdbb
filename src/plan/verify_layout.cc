// Layout: whatever the bytes are, looking through a PlanView at a part that passed here stays inside them.
#include <string>

#include "plan/builder.h"
#include "plan/verify.h"

namespace starling {
namespace {

using Count = std::uint64_t;

struct Part {
  std::span<const std::byte> bytes;
  PlanView view;

  const PlanHeader& header() const { return *view.header; }
};

bool reserved_is_zero(const PlanHeader& h) {
  std::uint32_t sum = 0;
  for (const std::uint8_t byte : h.reserved) sum |= byte;
  return sum == 0;
}

// Tables are filled without gaps, in the order of the blocks; so nothing can hide in them or be shared.
bool block_tables_are_dense(const PlanView& view) {
  Count instructions = 0;
  Count connections = 0;
  for (std::uint32_t b = 0; b < view.header->block_count; ++b) {
    const BlockPlan& block = view.blocks()[b];
    if (block.instruction_first != instructions || block.receive_first != connections || block.reserved != 0)
      return false;
    connections += block.receive_count;
    if (block.send_first != connections) return false;
    connections += block.send_count;
    instructions += block.instruction_count;
  }
  return instructions == view.header->instruction_count && connections == view.header->connection_count;
}

bool padding_is_zero(const PlanView& view) {
  if (view.header->connection_count % 2 == 0) return true;
  const Connection& last = view.connections()[view.header->connection_count];
  return last.peer == 0 && last.channel == 0;
}

bool dependency_ranges_are_dense(const PlanView& view) {
  Count next = 0;
  for (std::uint32_t i = 0; i < view.header->instruction_count; ++i) {
    const Instruction& instruction = view.instructions()[i];
    if (instruction.dependency_first != (instruction.dependency_count == 0 ? 0 : next)) return false;
    next += instruction.dependency_count;
  }
  return next == view.header->dependency_count;
}

struct LayoutRule {
  const char* name;
  bool (*holds)(const Part&);
  std::string (*explain)(const Part&);
};

// In this order: a rule may read what the rules before it have found to be inside the bytes.
constexpr LayoutRule kLayoutRules[] = {
    {"truncated", [](const Part& p) { return p.bytes.size() >= sizeof(PlanHeader); },
     [](const Part& p) { return std::to_string(p.bytes.size()) + " bytes hold no plan header"; }},
    {"alignment", [](const Part& p) { return reinterpret_cast<std::uintptr_t>(p.bytes.data()) % 8 == 0; },
     [](const Part&) { return std::string("the part does not lie at a multiple of 8 bytes"); }},
    {"magic", [](const Part& p) { return p.header().magic == kPlanMagic; },
     [](const Part& p) {
       return "the first word is " + std::to_string(p.header().magic) + ", not that of a plan";
     }},
    {"version", [](const Part& p) { return p.header().version == kPlanVersion; },
     [](const Part& p) {
       return "format version " + std::to_string(p.header().version) + "; this library reads " +
              std::to_string(kPlanVersion);
     }},
    {"length",
     [](const Part& p) {
       return p.header().total_bytes == p.bytes.size() && bytes_of(p.header()) == p.bytes.size();
     },
     [](const Part& p) {
       return "its tables take " + std::to_string(bytes_of(p.header())) + " bytes, the header says " +
              std::to_string(p.header().total_bytes) + ", there are " + std::to_string(p.bytes.size());
     }},
    {"reserved", [](const Part& p) { return reserved_is_zero(p.header()) && padding_is_zero(p.view); },
     [](const Part&) { return std::string("reserved bytes are not zero"); }},
    {"collective",
     [](const Part& p) { return static_cast<std::uint32_t>(p.header().collective) < kCollectiveCount; },
     [](const Part& p) {
       return "no collective has number " + std::to_string(static_cast<int>(p.header().collective));
     }},
    {"ranks",
     [](const Part& p) {
       const PlanHeader& h = p.header();
       return h.rank_count >= 1 && h.rank_count <= kMaxPlanRanks && h.rank < h.rank_count &&
              h.root < h.rank_count;
     },
     [](const Part& p) {
       return "rank " + std::to_string(p.header().rank) + " and root " + std::to_string(p.header().root) +
              " of " + std::to_string(p.header().rank_count) + " ranks (at most " +
              std::to_string(kMaxPlanRanks) + ")";
     }},
    {"blocks",
     [](const Part& p) { return p.header().block_count >= 1 && p.header().block_count <= kMaxPlanBlocks; },
     [](const Part& p) {
       return std::to_string(p.header().block_count) +
              " blocks; all blocks of a rank must be resident together, at most " +
              std::to_string(kMaxPlanBlocks);
     }},
    {"protocol",
     [](const Part& p) { return static_cast<std::uint32_t>(p.header().protocol) < kProtocolCount; },
     [](const Part& p) {
       return "no protocol has number " + std::to_string(static_cast<int>(p.header().protocol));
     }},
    {"tile", [](const Part& p) { return p.header().tile_bytes % 16 == 0; },
     [](const Part& p) {
       return "a tile of " + std::to_string(p.header().tile_bytes) + " bytes; use a multiple of 16";
     }},
    {"geometry",
     [](const Part& p) {
       const PlanHeader& h = p.header();
       constexpr Count kMostChunks = 1u << 20;  // so that the verifier's tables stay small
       return h.chunks_per_group >= 1 && h.input_groups >= 1 && h.output_groups >= 1 && h.in_place <= 1 &&
              Count{h.chunks_per_group} * h.input_groups <= kMostChunks && h.input_groups <= kMostChunks &&
              Count{h.chunks_per_group} * h.output_groups <= kMostChunks && h.output_groups <= kMostChunks &&
              h.scratch_chunks <= kMostChunks;
     },
     [](const Part& p) {
       const PlanHeader& h = p.header();
       return std::to_string(h.input_groups) + " input groups, " + std::to_string(h.output_groups) +
              " output groups, " + std::to_string(h.chunks_per_group) + " chunks in each, " +
              std::to_string(h.scratch_chunks) + " chunks of scratch, in place " + std::to_string(h.in_place);
     }},
    {"tables",
     [](const Part& p) { return block_tables_are_dense(p.view) && dependency_ranges_are_dense(p.view); },
     [](const Part&) {
       return std::string("the tables of the blocks do not follow each other without gaps");
     }},
};

}  // namespace

std::vector<Violation> verify_layout(std::span<const std::byte> bytes) {
  const Part part{bytes, PlanView{reinterpret_cast<const PlanHeader*>(bytes.data())}};
  for (const LayoutRule& rule : kLayoutRules) {
    if (rule.holds(part)) continue;
    Violation violation{.rule = rule.name, .text = rule.explain(part)};
    const std::string_view name = rule.name;
    if (name != "truncated" && name != "alignment") violation.rank = part.header().rank;
    return {violation};
  }
  return {};
}

}  // namespace starling
