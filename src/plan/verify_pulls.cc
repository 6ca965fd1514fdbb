// Pulls: with protocol pull a message is the address of a slice, which its receiver reads when it executes
// the receiving instruction. So whoever writes to that slice must do it before the sending instruction (or as
// a part of it), or after the receiving one. Vector clocks as in verify_races.cc, over the blocks of all
// ranks that messages and dependencies connect; what others write is ordered by nothing.
#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "plan/verify_stages.h"

namespace starling::stages {
namespace {

constexpr std::uint64_t kMostClockWords = std::uint64_t{1} << 26;

// A message: the instruction that names the slice, and the one that reads it.
struct Pull {
  std::uint32_t sender;  // block of the network
  std::uint32_t send;  // its instruction
  std::uint32_t receiver;
  std::uint32_t receive;
  std::uint64_t chunk;  // of the sender's rank's storage
  std::optional<LengthClass> length;
};

struct Write {
  std::uint32_t block;
  std::uint32_t instruction;
};

class Pulls {
 public:
  Pulls(const Network& network, Parts parts)
      : network_(network), parts_(parts), group_(network.blocks.size()) {
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
      auto& list = lengths[find(pull.sender)];
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
        if (pull.length == length_in(find(pull.sender))) check(pull, violations);
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
    for (std::uint32_t b = 0; b < group_.size(); ++b) {
      size_.push_back(sizes[group_[b]]);
      first_event_.push_back(b == 0 ? 0 : first_event_[b - 1] + network_.blocks[b - 1].instructions.size());
    }
  }

  std::uint64_t clock_words() const {
    std::uint64_t words = 0;
    for (std::uint32_t b = 0; b < group_.size(); ++b)
      words += std::uint64_t{size_[b]} * network_.blocks[b].instructions.size();
    return words;
  }

  // Messages, writes, and an order in which everything may happen.
  void collect() {
    std::vector<Storage> storages;
    for (std::uint32_t r = 0; r < network_.ranks.size(); ++r)
      storages.emplace_back(network_.geometry, r, network_.ranks[r].header->scratch_chunks);
    std::vector<std::deque<Pull>> under_way(network_.links.size());
    execute(network_, kUnboundedSlots, [&](const Event& e) {
      order_.push_back(e);
      const NetworkBlock& block = network_.blocks[e.block];
      const Instruction& i = block.instructions[e.instruction];
      const Storage& storage = storages[block.rank];
      for (const std::uint32_t link : block.receives_of(i)) {
        Pull pull = under_way[link].front();
        under_way[link].pop_front();
        pull.receiver = e.block;
        pull.receive = e.instruction;
        pulls_.push_back(pull);
      }
      const bool writes = writes_destination(i.opcode);
      if (writes)
        writes_[{block.rank, storage.at(i.destination_buffer, i.destination_chunk)}].push_back(
            {e.block, e.instruction});
      const std::uint64_t slice = writes             ? storage.at(i.destination_buffer, i.destination_chunk)
                                  : i.send_count > 0 ? storage.at(i.source_buffer, i.source_chunk)
                                                     : 0;
      for (const std::uint32_t link : block.sends_of(i))
        under_way[link].push_back(
            {e.block, e.instruction, 0, 0, slice, length_of(network_, parts_, block.rank, i, 0)});
    });
  }

  // before_[event]: for each block of its group, how many instructions lie before the event.
  template <class LengthIn>
  void run_clocks(LengthIn&& length_in) {
    std::vector<std::vector<std::uint32_t>> now;
    for (std::uint32_t b = 0; b < group_.size(); ++b) now.emplace_back(size_[b], 0);
    before_.assign(first_event_.back() + network_.blocks.back().instructions.size(), {});
    std::vector<std::deque<std::vector<std::uint32_t>>> under_way(network_.links.size());
    std::map<std::uint64_t, std::vector<std::uint32_t>> after;  // of instructions that others wait for
    for (const Event& e : order_) {
      const NetworkBlock& block = network_.blocks[e.block];
      const Instruction& i = block.instructions[e.instruction];
      std::vector<std::uint32_t>& clock = now[e.block];
      const bool counts = carries(network_, parts_, block.rank, i, length_in(group_[e.block]));
      for (const std::uint32_t link : block.receives_of(i)) {
        if (counts) join(clock, under_way[link].front());
        under_way[link].pop_front();
      }
      for (const Dependency& d : block.dependencies_of(i))
        if (counts)
          join(clock, after.at(first_event_[network_.block_of(block.rank, d.block)] + d.instruction));
      before_[first_event_[e.block] + e.instruction] = clock;
      clock[member_[e.block]] = e.instruction + 1;
      for (const std::uint32_t link : block.sends_of(i)) under_way[link].push_back(clock);
      if ((i.flags & kHasDependents) != 0) after[first_event_[e.block] + e.instruction] = clock;
    }
  }

  static void join(std::vector<std::uint32_t>& clock, const std::vector<std::uint32_t>& other) {
    for (std::size_t b = 0; b < clock.size(); ++b) clock[b] = std::max(clock[b], other[b]);
  }

  // Does a's instruction lie before b's in every execution?
  bool ordered(std::uint32_t a, std::uint32_t a_instruction, std::uint32_t b,
               std::uint32_t b_instruction) const {
    return group_[a] == group_[b] && before_[first_event_[b] + b_instruction][member_[a]] > a_instruction;
  }

  void check(const Pull& pull, std::vector<Violation>& violations) const {
    const NetworkBlock& sender = network_.blocks[pull.sender];
    const auto found = writes_.find({sender.rank, pull.chunk});
    if (found == writes_.end()) return;
    for (const Write& write : found->second) {
      if (write.block == pull.sender && write.instruction == pull.send) continue;
      if (ordered(write.block, write.instruction, pull.sender, pull.send)) continue;
      if (ordered(pull.receiver, pull.receive, write.block, write.instruction)) continue;
      const NetworkBlock& writer = network_.blocks[write.block];
      const NetworkBlock& reader = network_.blocks[pull.receiver];
      if (violations.size() < kMaxViolations)
        violations.push_back(violation_at(
            "pull", writer, write.instruction,
            "writes what rank " + std::to_string(reader.rank) + " block " + std::to_string(reader.block) +
                " instruction " + std::to_string(pull.receive) + " reads here, sent by block " +
                std::to_string(sender.block) + " instruction " + std::to_string(pull.send) +
                ", and nothing orders them" + (parts_ == Parts::kUnequal ? " when parts are unequal" : "")));
    }
  }

  const Network& network_;
  const Parts parts_;
  std::vector<std::uint32_t> group_;  // by block: the smallest block that it is connected with
  std::vector<std::uint32_t> member_;  // its number in the group
  std::vector<std::uint32_t> size_;  // of its group
  std::vector<std::uint64_t> first_event_;
  std::vector<Event> order_;
  std::vector<Pull> pulls_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::vector<Write>> writes_;  // by rank and chunk
  std::vector<std::vector<std::uint32_t>> before_;
};

}  // namespace

void check_pulls(const Network& network, Parts parts, std::vector<Violation>& violations) {
  if (network.ranks[0].header->protocol != Protocol::kPull || network.links.empty()) return;
  Pulls(network, parts).check(violations);
}

}  // namespace starling::stages
