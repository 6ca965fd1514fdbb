// Structure: what the interpreter takes for granted. A table of rules for one instruction, one for the
// headers; the rules for connections follow.
#include <string>
#include <vector>

#include "plan/builder.h"
#include "plan/verify_stages.h"

namespace starling::stages {
namespace {

// An instruction with all that its rules look at.
struct Site {
  const PlanView& view;
  const Geometry geometry;
  std::uint32_t rank;
  std::uint32_t block;
  std::uint32_t index;
  const Instruction& i;
  const std::vector<std::vector<bool>>& awaited;  // [block][instruction]: some dependency names it

  const BlockPlan& block_plan() const { return view.blocks()[block]; }
  OpcodeTraits traits() const { return kOpcodeTable[static_cast<std::uint32_t>(i.opcode)]; }
  std::string opcode() const { return traits().name; }
};

std::uint64_t chunks_of(const Site& s, BufferKind buffer) {
  return buffer == BufferKind::kScratch ? s.view.header->scratch_chunks : s.geometry.chunks(buffer);
}

bool is_buffer(BufferKind buffer) {
  return buffer == BufferKind::kInput || buffer == BufferKind::kOutput || buffer == BufferKind::kScratch;
}

bool in_bounds(const Site& s, BufferKind buffer, std::uint32_t chunk) {
  return is_buffer(buffer) && s.geometry.exists(buffer, s.rank) &&
         std::uint64_t{chunk} + s.i.chunks <= chunks_of(s, buffer);
}

std::string out_of_bounds(const Site& s, const char* role, BufferKind buffer, std::uint32_t chunk) {
  std::string text = s.opcode() + " has the " + role + " " + operand_name(buffer, chunk, s.i.chunks);
  if (!is_buffer(buffer)) return text + ", which is no buffer";
  if (!s.geometry.exists(buffer, s.rank)) {
    return text + ", but the rank has no " + std::string(name_of(buffer)) + " in this collective";
  }
  return text + ", but the buffer has " + std::to_string(chunks_of(s, buffer)) + " chunks";
}

// Present exactly if the opcode wants it; absent operands are all zero.
bool presence(bool wanted, BufferKind buffer, std::uint32_t chunk) {
  return wanted ? buffer != BufferKind::kNone : buffer == BufferKind::kNone && chunk == 0;
}

std::string wrong_presence(const Site& s, bool wanted, const char* role) {
  return s.opcode() + (wanted ? " needs a " : " takes no ") + role;
}

bool fan_fits(bool wanted, std::uint32_t most, std::uint32_t first, std::uint32_t count,
              std::uint32_t listed) {
  if (!wanted) return first == kNoConnection && count == 0;
  return count >= 1 && count <= most && first + count <= listed;
}

std::string wrong_fan(const Site& s, bool wanted, std::uint32_t most, const char* role, std::uint32_t first,
                      std::uint32_t count, std::uint32_t listed) {
  if (!wanted) return s.opcode() + " takes no connection to " + role;
  return s.opcode() + " takes 1 to " + std::to_string(most) + " connections to " + role + ", not " +
         std::to_string(count) + " from number " + std::to_string(first) + " of the block's " +
         std::to_string(listed);
}

// Several messages in one instruction only where they are reduced.
std::uint32_t most_received(const Site& s) { return s.traits().reduces ? kMaxFan : 1; }

bool overlaps_itself(const Site& s) {
  const Instruction& i = s.i;
  const std::uint64_t distance = i.source_chunk < i.destination_chunk ? i.destination_chunk - i.source_chunk
                                                                      : i.source_chunk - i.destination_chunk;
  if (i.source_buffer == i.destination_buffer) return distance != 0 && distance < i.chunks;
  if (i.source_buffer == BufferKind::kScratch || i.destination_buffer == BufferKind::kScratch) return false;
  if (!s.geometry.in_place) return false;
  const Storage storage(s.geometry, s.rank, 0);
  const std::uint64_t from = storage.at(i.source_buffer, i.source_chunk);
  const std::uint64_t to = storage.at(i.destination_buffer, i.destination_chunk);
  const std::uint64_t apart = from < to ? to - from : from - to;
  return apart != 0 && apart < i.chunks;
}

bool dependencies_hold(const Site& s) {
  for (std::uint32_t d = 0; d < s.i.dependency_count; ++d) {
    const Dependency& on = s.view.dependencies()[s.i.dependency_first + d];
    if (on.block >= s.view.header->block_count || on.block == s.block) return false;
    if (on.instruction >= s.view.blocks()[on.block].instruction_count) return false;
  }
  return true;
}

std::string wrong_dependency(const Site& s) {
  std::string text = s.opcode() + " waits for";
  for (std::uint32_t d = 0; d < s.i.dependency_count; ++d) {
    const Dependency& on = s.view.dependencies()[s.i.dependency_first + d];
    text += " " + std::to_string(on.block) + "." + std::to_string(on.instruction);
  }
  return text + "; every entry must name an instruction of another block of the rank";
}

struct InstructionRule {
  const char* name;
  bool (*holds)(const Site&);
  std::string (*explain)(const Site&);
};

// In this order: a rule may rely on those before it.
constexpr InstructionRule kInstructionRules[] = {
    {"opcode", [](const Site& s) { return static_cast<std::uint32_t>(s.i.opcode) < kOpcodeCount; },
     [](const Site& s) {
       return "no instruction has number " + std::to_string(static_cast<int>(s.i.opcode));
     }},
    {"flags", [](const Site& s) { return (s.i.flags & ~(kHasDependents | kFinal | kPut)) == 0; },
     [](const Site& s) { return s.opcode() + " has unknown flags " + std::to_string(s.i.flags); }},
    {"chunks", [](const Site& s) { return s.i.chunks >= 1; },
     [](const Site& s) { return s.opcode() + " works on no chunks"; }},
    {"source",
     [](const Site& s) { return presence(s.traits().reads_source, s.i.source_buffer, s.i.source_chunk); },
     [](const Site& s) { return wrong_presence(s, s.traits().reads_source, "source"); }},
    {"destination",
     [](const Site& s) {
       return presence(s.traits().writes_destination, s.i.destination_buffer, s.i.destination_chunk);
     },
     [](const Site& s) { return wrong_presence(s, s.traits().writes_destination, "destination"); }},
    {"input_is_constant", [](const Site& s) { return s.i.destination_buffer != BufferKind::kInput; },
     [](const Site& s) { return s.opcode() + " writes into the input; in place, write into the output"; }},
    {"source_bounds",
     [](const Site& s) {
       return !s.traits().reads_source || in_bounds(s, s.i.source_buffer, s.i.source_chunk);
     },
     [](const Site& s) { return out_of_bounds(s, "source", s.i.source_buffer, s.i.source_chunk); }},
    {"destination_bounds",
     [](const Site& s) {
       return !s.traits().writes_destination || in_bounds(s, s.i.destination_buffer, s.i.destination_chunk);
     },
     [](const Site& s) {
       return out_of_bounds(s, "destination", s.i.destination_buffer, s.i.destination_chunk);
     }},
    {"size_bounds", [](const Site& s) { return in_bounds(s, s.i.size_buffer, s.i.size_chunk); },
     [](const Site& s) { return out_of_bounds(s, "size", s.i.size_buffer, s.i.size_chunk); }},
    {"overlap",
     [](const Site& s) {
       return !(s.traits().reads_source && s.traits().writes_destination) || !overlaps_itself(s);
     },
     [](const Site& s) {
       return s.opcode() + " from " + operand_name(s.i.source_buffer, s.i.source_chunk, s.i.chunks) + " to " +
              operand_name(s.i.destination_buffer, s.i.destination_chunk, s.i.chunks) +
              ": they overlap in part";
     }},
    {"receives",
     [](const Site& s) {
       return fan_fits(s.traits().receives, most_received(s), s.i.receive_first, s.i.receive_count,
                       s.block_plan().receive_count);
     },
     [](const Site& s) {
       return wrong_fan(s, s.traits().receives, most_received(s), "receive from", s.i.receive_first,
                        s.i.receive_count, s.block_plan().receive_count);
     }},
    {"sends",
     [](const Site& s) {
       return fan_fits(s.traits().sends, kMaxFan, s.i.send_first, s.i.send_count, s.block_plan().send_count);
     },
     [](const Site& s) {
       return wrong_fan(s, s.traits().sends, kMaxFan, "send to", s.i.send_first, s.i.send_count,
                        s.block_plan().send_count);
     }},
    {"protocol",
     [](const Site& s) {
       if (s.view.header->protocol == Protocol::kSlots) return true;
       const bool names_memory = !s.traits().sends || s.traits().writes_destination ||
                                 s.i.opcode == Opcode::send || (s.i.flags & kPut) != 0;
       return s.i.chunks == 1 && (names_memory || s.view.header->protocol != Protocol::kPull);
     },
     [](const Site& s) {
       return s.i.chunks != 1 ? std::string(name_of(s.view.header->protocol)) +
                                    " take instructions of one chunk, not " + std::to_string(s.i.chunks)
                              : s.opcode() + " sends what lies in no buffer; protocol pull sends slices";
     }},
    {"put",
     [](const Site& s) {
       if ((s.i.flags & kPut) == 0) return true;
       return s.view.header->protocol == Protocol::kPull && (s.traits().sends || s.i.opcode == Opcode::recv);
     },
     [](const Site& s) {
       return s.opcode() +
              (s.view.header->protocol != Protocol::kPull
                   ? " is flagged put, which messages of protocol pull alone are"
                   : " is flagged put, but has no message that could be: recv and what sends have");
     }},
    {"local_position",
     [](const Site& s) {
       return s.i.local_position <= (s.traits().receives && s.traits().reads_source ? s.i.receive_count : 0);
     },
     [](const Site& s) {
       return s.opcode() + " puts the local operand behind " + std::to_string(s.i.local_position) + " of " +
              std::to_string(s.i.receive_count) + " received ones";
     }},
    {"final",
     [](const Site& s) {
       if ((s.i.flags & kFinal) == 0) return true;
       return s.i.opcode != Opcode::nop && traits_of(s.geometry.collective).reduces;
     },
     [](const Site& s) { return s.opcode() + " is flagged final, but has no result of a reduction"; }},
    {"dependencies", dependencies_hold, wrong_dependency},
    {"has_dependents",
     [](const Site& s) { return ((s.i.flags & kHasDependents) != 0) == bool(s.awaited[s.block][s.index]); },
     [](const Site& s) {
       return s.opcode() + ((s.i.flags & kHasDependents) != 0
                                ? " announces its end, but no block waits for it"
                                : " does not announce its end, but another block waits for it");
     }},
};

std::vector<std::vector<bool>> awaited_instructions(const PlanView& view) {
  std::vector<std::vector<bool>> awaited;
  for (std::uint32_t b = 0; b < view.header->block_count; ++b)
    awaited.emplace_back(view.blocks()[b].instruction_count, false);
  for (std::uint32_t d = 0; d < view.header->dependency_count; ++d) {
    const Dependency& on = view.dependencies()[d];
    if (on.block < awaited.size() && on.instruction < awaited[on.block].size())
      awaited[on.block][on.instruction] = true;
  }
  return awaited;
}

void check_instruction(const Site& site, std::vector<Violation>& violations) {
  for (const InstructionRule& rule : kInstructionRules) {
    if (rule.holds(site)) continue;
    violations.push_back({.rule = rule.name,
                          .rank = site.rank,
                          .block = site.block,
                          .instruction = site.index,
                          .text = rule.explain(site)});
    return;
  }
}

// Every rank's header says the same about the collective.
struct HeaderRule {
  const char* name;
  std::uint64_t (*value)(const PlanHeader&);
};
constexpr HeaderRule kSharedFields[] = {
    {"collective", [](const PlanHeader& h) { return std::uint64_t(h.collective); }},
    {"in_place", [](const PlanHeader& h) { return std::uint64_t{h.in_place}; }},
    {"protocol", [](const PlanHeader& h) { return std::uint64_t(h.protocol); }},
    {"tile_bytes", [](const PlanHeader& h) { return std::uint64_t{h.tile_bytes}; }},
    {"rank_count", [](const PlanHeader& h) { return std::uint64_t{h.rank_count}; }},
    {"root", [](const PlanHeader& h) { return std::uint64_t{h.root}; }},
    {"chunks_per_group", [](const PlanHeader& h) { return std::uint64_t{h.chunks_per_group}; }},
    {"input_groups", [](const PlanHeader& h) { return std::uint64_t{h.input_groups}; }},
    {"output_groups", [](const PlanHeader& h) { return std::uint64_t{h.output_groups}; }},
};

// The verifier keeps a value for every chunk of every rank.
void check_size(std::span<const PlanView> ranks, std::vector<Violation>& violations) {
  constexpr std::uint64_t kMostChunks = 1u << 26;
  std::uint64_t chunks = 0;
  for (const PlanView& view : ranks) {
    const Geometry geometry = Geometry::of(*view.header);
    chunks += geometry.chunks(BufferKind::kInput) + geometry.chunks(BufferKind::kOutput) +
              view.header->scratch_chunks;
  }
  if (chunks <= kMostChunks) return;
  violations.push_back({.rule = "size",
                        .text = "all ranks together have " + std::to_string(chunks) + " chunks; at most " +
                                std::to_string(kMostChunks) + " can be verified"});
}

void check_geometry(const PlanHeader& header, std::vector<Violation>& violations) {
  if (!traits_of(header.collective).rooted && header.root != 0) {
    violations.push_back({.rule = "root",
                          .text = std::string(traits_of(header.collective).name) +
                                  " has no root, the plan has " + std::to_string(header.root) +
                                  "; write root 0"});
  }
  if (header.collective == Collective::kCustom) return;
  const Geometry standard = Geometry::standard(header.collective, header.rank_count, header.root, false, 1);
  if (header.input_groups != standard.input_groups || header.output_groups != standard.output_groups) {
    violations.push_back({.rule = "groups",
                          .text = "the plan has " + std::to_string(header.input_groups) + " input and " +
                                  std::to_string(header.output_groups) + " output groups; " +
                                  std::string(traits_of(header.collective).name) + " has " +
                                  std::to_string(standard.input_groups) + " and " +
                                  std::to_string(standard.output_groups)});
  }
  if (header.collective == Collective::kSendRecv && header.rank_count > 2) {
    violations.push_back({.rule = "groups", .text = "send_recv is between two ranks, or one with itself"});
  }
}

}  // namespace

void check_headers(std::span<const PlanView> ranks, std::vector<Violation>& violations) {
  const PlanHeader& first = *ranks[0].header;
  if (first.rank_count != ranks.size()) {
    violations.push_back({.rule = "parts",
                          .text = "the plan is for " + std::to_string(first.rank_count) +
                                  " ranks, there are parts for " + std::to_string(ranks.size())});
    return;
  }
  for (std::uint32_t r = 0; r < ranks.size(); ++r) {
    const PlanHeader& header = *ranks[r].header;
    if (header.rank != r) {
      violations.push_back({.rule = "parts",
                            .rank = r,
                            .text = "the part in this place is that of rank " + std::to_string(header.rank)});
    }
    for (const HeaderRule& field : kSharedFields) {
      if (field.value(header) == field.value(first)) continue;
      violations.push_back({.rule = "shared_fields",
                            .rank = r,
                            .text = std::string(field.name) + " is " + std::to_string(field.value(header)) +
                                    ", on rank 0 it is " + std::to_string(field.value(first))});
    }
  }
  check_geometry(first, violations);
  check_size(ranks, violations);
}

void check_instructions(std::span<const PlanView> ranks, std::vector<Violation>& violations) {
  for (std::uint32_t r = 0; r < ranks.size(); ++r) {
    const PlanView& view = ranks[r];
    const Geometry geometry = Geometry::of(*view.header);
    const std::vector<std::vector<bool>> awaited = awaited_instructions(view);
    for (std::uint32_t b = 0; b < view.header->block_count; ++b) {
      const BlockPlan& block = view.blocks()[b];
      for (std::uint32_t index = 0; index < block.instruction_count; ++index) {
        const Instruction& i = view.instructions()[block.instruction_first + index];
        check_instruction({view, geometry, r, b, index, i, awaited}, violations);
      }
    }
  }
}

void check_links(const Network& network, std::vector<Violation>& violations) {
  for (const Link& link : network.links) {
    if (link.source == link.destination || link.source >= network.ranks.size() ||
        link.destination >= network.ranks.size()) {
      violations.push_back(
          {.rule = "peers",
           .text = "connection " + link.name() + " does not lead from one rank of the plan to another"});
    } else if (link.channel >= kMaxPlanChannels) {
      violations.push_back({.rule = "channels",
                            .text = "connection " + link.name() + ": channels are 0 to " +
                                    std::to_string(kMaxPlanChannels - 1)});
    } else if (link.sender == kNowhere) {
      violations.push_back({.rule = "one_block_per_connection",
                            .rank = link.source,
                            .text = "no block sends on connection " + link.name()});
    } else if (link.receiver == kNowhere) {
      violations.push_back({.rule = "one_block_per_connection",
                            .rank = link.destination,
                            .text = "no block receives on connection " + link.name()});
    }
  }
  if (!violations.empty()) return;
  std::vector<std::uint64_t> sent(network.links.size());
  std::vector<std::uint64_t> received(network.links.size());
  for (const NetworkBlock& block : network.blocks) {
    for (const Instruction& i : block.instructions) {
      for (const std::uint32_t link : block.receives_of(i)) ++received[link];
      for (const std::uint32_t link : block.sends_of(i)) ++sent[link];
    }
  }
  for (std::size_t link = 0; link < network.links.size(); ++link) {
    if (sent[link] == received[link]) continue;
    violations.push_back({.rule = "equal_counts",
                          .rank = network.links[link].source,
                          .text = "on connection " + network.links[link].name() + " " +
                                  std::to_string(sent[link]) + " messages are sent and " +
                                  std::to_string(received[link]) + " received"});
  }
}

}  // namespace starling::stages
