// Races: two blocks of a rank that touch one chunk, one of them writing, must be ordered by dependencies and
// messages. Vector clocks over the blocks of that rank follow every edge that is there in every execution:
//   program order; a message, from its send to its receive; a dependency, from the instruction to who waits
//   for it.
// A credit is no edge: a connector may have more slots than the plan needs. An instruction whose tile is
// empty neither sends nor waits, so an edge counts for a chunk only if its carrier is not empty whenever the
// chunk is not.
#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "plan/verify_stages.h"

namespace starling::stages {

std::optional<LengthClass> length_of(const Network& network, Parts parts, std::uint32_t rank,
                                     const Instruction& i, std::uint32_t k) {
  if (i.size_buffer == BufferKind::kScratch) return std::nullopt;
  return length_class(network.geometry, parts, rank, i.size_buffer, i.size_chunk + k);
}

bool carries(const Network& network, Parts parts, std::uint32_t rank, const Instruction& i,
             const std::optional<LengthClass>& length) {
  if (i.opcode == Opcode::nop) return true;
  for (std::uint32_t k = 0; k < i.chunks; ++k) {
    const std::optional<LengthClass> mine = length_of(network, parts, rank, i, k);
    if (!mine || (length && mine->covers(*length))) return true;
  }
  return false;
}

namespace {

using Clock = std::vector<std::uint64_t>;  // per block of the rank: how many of its instructions lie before

struct Access {
  std::uint32_t block;  // of the rank
  std::uint32_t instruction;
  bool writes;
  std::optional<LengthClass> length;  // none: scratch that is used at its full size, never empty
};

struct Conflict {
  Access first;
  Access second;
  std::uint64_t chunk;  // of the rank's storage
  bool ordered = false;
};

class RankRaces {
 public:
  RankRaces(const Network& network, Parts parts, std::uint32_t rank)
      : network_(network),
        parts_(parts),
        rank_(rank),
        first_(network.first_block[rank]),
        block_count_(network.first_block[rank + 1] - first_),
        storage_(network.geometry, rank, network.ranks[rank].header->scratch_chunks) {}

  bool may_have_any() const { return block_count_ > 1 && !shared_chunks().empty(); }

  void check(std::vector<Violation>& violations) {
    find_conflicts();
    // One pass that follows only edges which hold for all the conflicts at once settles most plans.
    std::vector<std::optional<LengthClass>> lengths;
    for (const Conflict& c : conflicts_) {
      for (const auto& length : {c.first.length, c.second.length}) {
        if (std::find(lengths.begin(), lengths.end(), length) == lengths.end()) lengths.push_back(length);
      }
    }
    order(lengths, [](const Conflict&) { return true; });
    for (const auto& length : lengths) {
      if (std::all_of(conflicts_.begin(), conflicts_.end(), [](const Conflict& c) { return c.ordered; }))
        return;
      order({length},
            [&](const Conflict& c) { return c.first.length == length || c.second.length == length; });
    }
    report(violations);
  }

 private:
  // Chunks of the storage that several blocks touch, one of them writing.
  std::vector<bool> shared_chunks() const {
    std::vector<std::uint32_t> toucher(storage_.size(), kNowhere);
    std::vector<bool> several(storage_.size(), false);
    std::vector<bool> written(storage_.size(), false);
    for_each_access([&](std::uint32_t b, std::uint32_t, std::uint64_t chunk, bool writes) {
      if (toucher[chunk] != kNowhere && toucher[chunk] != b) several[chunk] = true;
      toucher[chunk] = b;
      if (writes) written[chunk] = true;
    });
    bool any = false;
    for (std::size_t c = 0; c < several.size(); ++c) {
      several[c] = several[c] && written[c];
      any = any || several[c];
    }
    return any ? several : std::vector<bool>();
  }

  template <typename Visit>
  void for_each_access(Visit&& visit) const {
    for (std::uint32_t b = 0; b < block_count_; ++b) {
      const NetworkBlock& block = network_.blocks[first_ + b];
      for (std::uint32_t index = 0; index < block.instructions.size(); ++index) {
        const Instruction& i = block.instructions[index];
        for (std::uint32_t k = 0; k < i.chunks; ++k) {
          if (reads_source(i.opcode))
            visit(b, index, storage_.at(i.source_buffer, i.source_chunk) + k, false);
          if (writes_destination(i.opcode))
            visit(b, index, storage_.at(i.destination_buffer, i.destination_chunk) + k, true);
        }
      }
    }
  }

  void find_conflicts() {
    const std::vector<bool> shared = shared_chunks();
    std::map<std::uint64_t, std::vector<Access>> accesses;  // by chunk
    for (std::uint32_t b = 0; b < block_count_; ++b) {
      const NetworkBlock& block = network_.blocks[first_ + b];
      for (std::uint32_t index = 0; index < block.instructions.size(); ++index) {
        const Instruction& i = block.instructions[index];
        for (std::uint32_t k = 0; k < i.chunks; ++k) {
          const auto note = [&](BufferKind buffer, std::uint32_t chunk, bool writes) {
            const std::uint64_t at = storage_.at(buffer, chunk) + k;
            if (!shared[at]) return;
            accesses[at].push_back({b, index, writes, length_of(network_, parts_, rank_, i, k)});
          };
          if (reads_source(i.opcode)) note(i.source_buffer, i.source_chunk, false);
          if (writes_destination(i.opcode)) note(i.destination_buffer, i.destination_chunk, true);
        }
      }
    }
    for (const auto& [chunk, list] : accesses) {
      for (std::size_t a = 0; a < list.size(); ++a) {
        for (std::size_t b = a + 1; b < list.size(); ++b) {
          if (list[a].block != list[b].block && (list[a].writes || list[b].writes)) {
            conflicts_.push_back({list[a], list[b], chunk});
          }
        }
      }
    }
  }

  // Marks the chosen conflicts that are ordered by edges whose carriers hold for all the lengths.
  template <typename Chosen>
  void order(const std::vector<std::optional<LengthClass>>& lengths, Chosen&& chosen) {
    std::vector<Clock> now(network_.blocks.size(), Clock(block_count_, 0));
    std::vector<std::deque<Clock>> under_way(network_.links.size());
    std::map<std::pair<std::uint32_t, std::uint32_t>, Clock> after;  // of instructions that others wait for
    std::map<std::pair<std::uint32_t, std::uint32_t>, Clock> before;  // of the instructions in conflicts
    for (const Conflict& c : conflicts_) {
      before[{c.first.block, c.first.instruction}];
      before[{c.second.block, c.second.instruction}];
    }
    execute(network_, kUnboundedSlots, [&](const Event& e) {
      const NetworkBlock& block = network_.blocks[e.block];
      const Instruction& i = block.instructions[e.instruction];
      Clock& clock = now[e.block];
      const bool counts = std::all_of(lengths.begin(), lengths.end(), [&](const auto& length) {
        return carries(network_, parts_, block.rank, i, length);
      });
      for (const std::uint32_t link : block.receives_of(i)) {
        if (counts) join(clock, under_way[link].front());
        under_way[link].pop_front();
      }
      for (const Dependency& d : block.dependencies_of(i)) {
        const std::uint32_t other = network_.block_of(block.rank, d.block);
        if (counts) join(clock, after.at({other, d.instruction}));
      }
      if (block.rank == rank_) {
        const auto wanted = before.find({block.block, e.instruction});
        if (wanted != before.end()) wanted->second = clock;
        clock[block.block] = e.instruction + 1;
      }
      for (const std::uint32_t link : block.sends_of(i)) under_way[link].push_back(clock);
      if ((i.flags & kHasDependents) != 0) after[{e.block, e.instruction}] = clock;
    });
    for (Conflict& c : conflicts_) {
      if (c.ordered || !chosen(c)) continue;
      c.ordered = before.at({c.second.block, c.second.instruction})[c.first.block] > c.first.instruction ||
                  before.at({c.first.block, c.first.instruction})[c.second.block] > c.second.instruction;
    }
  }

  static void join(Clock& clock, const Clock& other) {
    for (std::size_t b = 0; b < clock.size(); ++b) clock[b] = std::max(clock[b], other[b]);
  }

  void report(std::vector<Violation>& violations) const {
    for (const Conflict& c : conflicts_) {
      if (c.ordered || violations.size() >= kMaxViolations) continue;
      const auto tell = [&](const Access& a) {
        const Opcode opcode = network_.blocks[first_ + a.block].instructions[a.instruction].opcode;
        return "block " + std::to_string(a.block) + " instruction " + std::to_string(a.instruction) + " (" +
               kOpcodeTable[static_cast<std::uint32_t>(opcode)].name + ") " + (a.writes ? "writes" : "reads");
      };
      violations.push_back(violation_at(
          "race", network_.blocks[first_ + c.second.block], c.second.instruction,
          tell(c.first) + " and " + tell(c.second) + " " + chunk_name(c.chunk) + ", and nothing orders them" +
              (parts_ == Parts::kUnequal ? " when parts are unequal" : "")));
    }
  }

  std::string chunk_name(std::uint64_t chunk) const {
    for (const BufferKind buffer : {BufferKind::kScratch, BufferKind::kOutput, BufferKind::kInput}) {
      const std::uint64_t first = storage_.at(buffer, 0);
      const std::uint64_t count =
          buffer == BufferKind::kScratch ? storage_.size() - first : network_.geometry.chunks(buffer);
      if (chunk >= first && chunk < first + count) return operand_name(buffer, chunk - first, 1);
    }
    return "storage chunk " + std::to_string(chunk);
  }

  const Network& network_;
  const Parts parts_;
  const std::uint32_t rank_;
  const std::uint32_t first_;
  const std::uint32_t block_count_;
  const Storage storage_;
  std::vector<Conflict> conflicts_;
};

}  // namespace

void check_races(const Network& network, Parts parts, std::vector<Violation>& violations) {
  for (std::uint32_t rank = 0; rank < network.ranks.size() && violations.empty(); ++rank) {
    RankRaces races(network, parts, rank);
    if (races.may_have_any()) races.check(violations);
  }
}

}  // namespace starling::stages
