// Pulls: with protocol pull a message is the address of a slice, which its receiver reads when it executes
// the receiving instruction. So whoever writes to that slice must do it before the sending instruction (or as
// a part of it), or after the receiving one. Vector clocks as in verify_races.cc, over the blocks of all
// ranks that messages and dependencies connect; what others write is ordered by nothing.
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "plan/execution_order.h"
#include "plan/verify_stages.h"

namespace starling::stages {
namespace {

constexpr std::uint64_t kMostClockWords = std::uint64_t{1} << 26;

// A message: the instruction that names the slice, and the one that reads it.
struct Pull {
  Event send;
  Event receive;
  std::uint64_t chunk;  // of the sender's rank's storage
  std::optional<LengthClass> length;
};

class Pulls {
 public:
  Pulls(const Network& network, Parts parts)
      : network_(network), parts_(parts), order_(network), group_(network.blocks.size()) {
    std::iota(group_.begin(), group_.end(), 0u);
    for (const Link& link : network.links) join_groups(link.sender, link.receiver);
    for (const NetworkBlock& block : network.blocks)
      for (const Instruction& i : block.instructions)
        for (const Dependency& d : block.dependencies_of(i))
          join_groups(network.block_of(block.rank, block.block), network.block_of(block.rank, d.block));
    number_members();
    collect();
  }

  void check(std::vector<Violation>& violations) {
    if (clock_words() > kMostClockWords) {
      violations.push_back(
          {.rule = "pull_size",
           .text = "too many connected blocks and instructions for a plan of protocol pull"});
      return;
    }
    // One pass for each length that occurs in a group; groups are apart, so theirs go together.
    std::map<std::uint32_t, std::vector<std::optional<LengthClass>>> lengths;
    std::size_t passes = 0;
    for (const Pull& pull : pulls_) {
      auto& list = lengths[find(pull.send.block)];
      if (std::find(list.begin(), list.end(), pull.length) == list.end()) list.push_back(pull.length);
      passes = std::max(passes, list.size());
    }
    for (std::size_t pass = 0; pass < passes && violations.empty(); ++pass) {
      const auto length_in = [&](std::uint32_t group) {
        const auto& list = lengths[group];
        return list.empty() ? std::optional<LengthClass>() : list[std::min(pass, list.size() - 1)];
      };
      run_clocks(length_in);
      for (const Pull& pull : pulls_)
        if (pull.length == length_in(find(pull.send.block))) check(pull, violations);
    }
  }

 private:
  std::uint32_t find(std::uint32_t block) const {
    while (group_[block] != block) block = group_[block];
    return block;
  }
  void join_groups(std::uint32_t a, std::uint32_t b) {
    const std::uint32_t x = find(a), y = find(b);
    group_[std::max(x, y)] = std::min(x, y);
  }

  void number_members() {
    std::vector<std::uint32_t> sizes(group_.size());
    for (std::uint32_t b = 0; b < group_.size(); ++b) {
      group_[b] = find(b);  // roots have the smallest number, so they are flat already
      member_.push_back(sizes[group_[b]]++);
    }
    first_word_.push_back(0);
    for (std::uint32_t b = 0; b < group_.size(); ++b) {
      size_.push_back(sizes[group_[b]]);
      first_word_.push_back(first_word_[b] + size_[b] * network_.blocks[b].instructions.size());
    }
  }

  std::uint64_t clock_words() const { return first_word_.back(); }

  void collect() {
    std::vector<Storage> storages;
    for (std::uint32_t r = 0; r < network_.ranks.size(); ++r)
      storages.emplace_back(network_.geometry, r, network_.ranks[r].header->scratch_chunks);
    for (std::uint32_t at = 0; at < order_.size(); ++at) {
      const Event e = order_.events()[at];
      const NetworkBlock& block = network_.blocks[e.block];
      const Instruction& i = block.instructions[e.instruction];
      if (writes_destination(i.opcode))
        writes_[{block.rank, storages[block.rank].at(i.destination_buffer, i.destination_chunk)}].push_back(
            {e.block, e.instruction});
      for (const std::uint32_t cause : order_.causes(at).first(i.receive_count)) {
        const Event send = order_.events()[cause];
        const std::uint32_t rank = network_.blocks[send.block].rank;
        const Instruction& sender = network_.blocks[send.block].instructions[send.instruction];
        pulls_.push_back(
            {send, e, slice_of(sender, storages[rank]), length_of(network_, parts_, rank, sender, 0)});
      }
    }
  }

  // What a sending instruction names: what it wrote, if it writes.
  static std::uint64_t slice_of(const Instruction& i, const Storage& storage) {
    return writes_destination(i.opcode) ? storage.at(i.destination_buffer, i.destination_chunk)
                                        : storage.at(i.source_buffer, i.source_chunk);
  }

  // clocks_: after each event, how many instructions of each block of its group lie before it or are it.
  template <class LengthIn>
  void run_clocks(LengthIn&& length_in) {
    clocks_.assign(clock_words(), 0);
    for (std::uint32_t at = 0; at < order_.size(); ++at) {
      const Event e = order_.events()[at];
      const NetworkBlock& block = network_.blocks[e.block];
      const std::size_t size = size_[e.block];
      std::uint32_t* clock = clock_of(e);
      if (e.instruction > 0) std::copy_n(clock - size, size, clock);
      if (carries(network_, parts_, block.rank, block.instructions[e.instruction],
                  length_in(group_[e.block]))) {
        for (const std::uint32_t cause : order_.causes(at))
          join(clock, clock_of(order_.events()[cause]), size);
      }
      clock[member_[e.block]] = e.instruction + 1;
    }
  }

  std::uint32_t* clock_of(const Event& e) {
    return clocks_.data() + first_word_[e.block] + std::size_t{e.instruction} * size_[e.block];
  }

  // Does a's instruction lie before b's in every execution?
  bool lies_before(const Event& a, const Event& b) {
    if (a.block == b.block) return a.instruction < b.instruction;
    return group_[a.block] == group_[b.block] && clock_of(b)[member_[a.block]] > a.instruction;
  }

  void check(const Pull& pull, std::vector<Violation>& violations) {
    const NetworkBlock& sender = network_.blocks[pull.send.block];
    const auto found = writes_.find({sender.rank, pull.chunk});
    if (found == writes_.end()) return;
    for (const Event& write : found->second) {
      if (write.block == pull.send.block && write.instruction == pull.send.instruction) continue;
      if (lies_before(write, pull.send) || lies_before(pull.receive, write)) continue;
      const NetworkBlock& writer = network_.blocks[write.block];
      const NetworkBlock& reader = network_.blocks[pull.receive.block];
      if (violations.size() < kMaxViolations)
        violations.push_back(violation_at(
            "pull", writer, write.instruction,
            "writes what rank " + std::to_string(reader.rank) + " block " + std::to_string(reader.block) +
                " instruction " + std::to_string(pull.receive.instruction) + " reads here, sent by block " +
                std::to_string(sender.block) + " instruction " + std::to_string(pull.send.instruction) +
                ", and nothing orders them" + (parts_ == Parts::kUnequal ? " when parts are unequal" : "")));
    }
  }

  const Network& network_;
  const Parts parts_;
  const ExecutionOrder order_;
  std::vector<std::uint32_t> group_;  // by block: the smallest block that it is connected with
  std::vector<std::uint32_t> member_;  // its number in the group
  std::vector<std::uint32_t> size_;  // of its group
  std::vector<std::uint64_t> first_word_;  // of its clocks; one more entry ends the last block
  std::vector<Pull> pulls_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::vector<Event>> writes_;  // by rank and chunk
  std::vector<std::uint32_t> clocks_;
};

}  // namespace

void check_pulls(const Network& network, Parts parts, std::vector<Violation>& violations) {
  if (network.ranks[0].header->protocol != Protocol::kPull || network.links.empty()) return;
  Pulls(network, parts).check(violations);
}

}  // namespace starling::stages
