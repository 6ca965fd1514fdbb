// Races: two blocks of a rank that touch one chunk, one of them writing, must be ordered by dependencies and
// messages. Vector clocks over the blocks of that rank follow every edge that is there in every execution:
//   program order; a message, from its send to its receive; a dependency, from the instruction to who waits
//   for it.
// A credit is no edge: a connector may have more slots than the plan needs. An instruction whose tile is
// empty neither sends nor waits, so an edge counts for a chunk only if its carrier is not empty whenever the
// chunk is not.
#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "plan/execution_order.h"
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
  RankRaces(const Network& network, const ExecutionOrder& order, Parts parts, std::uint32_t rank)
      : network_(network),
        order_(order),
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
    run_clocks(lengths);
    for (Conflict& c : conflicts_) {
      if (!c.ordered && chosen(c))
        c.ordered = lies_before(c.first, c.second) || lies_before(c.second, c.first);
    }
  }

  // clocks_: after each event, how many instructions of each block of the rank lie before it or are it.
  void run_clocks(const std::vector<std::optional<LengthClass>>& lengths) {
    clocks_.assign(order_.size() * block_count_, 0);
    for (std::uint32_t at = 0; at < order_.size(); ++at) {
      const Event e = order_.events()[at];
      const NetworkBlock& block = network_.blocks[e.block];
      std::uint32_t* clock = clock_of(at);
      if (e.instruction > 0)
        std::copy_n(clock_of(order_.position(e.block, e.instruction - 1)), block_count_, clock);
      bool counts = false;  // looked at where it matters: of most events nothing on this rank depends
      for (const std::uint32_t cause : order_.causes(at)) {
        if (knows(clock, clock_of(cause), block_count_)) continue;
        counts = counts || std::all_of(lengths.begin(), lengths.end(), [&](const auto& length) {
                   return carries(network_, parts_, block.rank, block.instructions[e.instruction], length);
                 });
        if (!counts) break;
        join(clock, clock_of(cause), block_count_);
      }
      if (block.rank == rank_) clock[block.block] = e.instruction + 1;
    }
  }

  std::uint32_t* clock_of(std::uint32_t position) {
    return clocks_.data() + std::size_t{position} * block_count_;
  }

  // Of accesses by different blocks.
  bool lies_before(const Access& a, const Access& b) {
    return clock_of(order_.position(first_ + b.block, b.instruction))[a.block] > a.instruction;
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
  const ExecutionOrder& order_;
  const Parts parts_;
  const std::uint32_t rank_;
  const std::uint32_t first_;
  const std::uint32_t block_count_;
  const Storage storage_;
  std::vector<Conflict> conflicts_;
  std::vector<std::uint32_t> clocks_;  // by event, one word for each block of the rank
};

}  // namespace

void check_races(const Network& network, Parts parts, std::vector<Violation>& violations) {
  const ExecutionOrder order(network);
  for (std::uint32_t rank = 0; rank < network.ranks.size() && violations.empty(); ++rank) {
    RankRaces races(network, order, parts, rank);
    if (races.may_have_any()) races.check(violations);
  }
}

}  // namespace starling::stages
