// Pulls and puts: with protocol pull a message is in use for a time, and others that touch its bytes must do
// so before that time or after it.
//   pull  the address of a slice, from the sending instruction on, until the receiving one has read there:
//         whoever writes to the slice does it before the sending instruction (or as a part of it), or after
//         the receiving one
//   put   the receiver's slice was told when the tile began. From the sending instruction on, which writes
//         there, until the receiving one, which does nothing more, nobody else reads or writes it
// An instruction may pull the very chunk that it puts: it goes element by element, at the same positions.
// Vector clocks as in verify_races.cc, over the blocks of all ranks that messages and dependencies connect;
// what others do is ordered by nothing.
#include <algorithm>
#include <compare>
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

// A chunk of a rank's storage.
struct PutPlace {
  std::uint32_t rank;
  std::uint64_t chunk;

  friend auto operator<=>(const PutPlace&, const PutPlace&) = default;
};

// The instructions that send it and receive it, and where its bytes lie: with the sender of a pull, with the
// receiver of a put.
struct Message {
  Event send;
  Event receive;
  bool put;
  PutPlace place;
  std::optional<LengthClass> length;
};

struct Touch {
  Event event;
  bool writes;
};

bool same(const Event& a, const Event& b) { return a.block == b.block && a.instruction == b.instruction; }

class Messages {
 public:
  Messages(const Network& network, Parts parts)
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
    for (const Message& message : messages_) {
      auto& list = lengths[find(message.send.block)];
      if (std::find(list.begin(), list.end(), message.length) == list.end()) list.push_back(message.length);
      passes = std::max(passes, list.size());
    }
    for (std::size_t pass = 0; pass < passes && violations.empty(); ++pass) {
      const auto length_in = [&](std::uint32_t group) {
        const auto& list = lengths[group];
        return list.empty() ? std::optional<LengthClass>() : list[std::min(pass, list.size() - 1)];
      };
      run_clocks(length_in);
      for (std::size_t m = 0; m < messages_.size(); ++m) {
        if (messages_[m].length != length_in(find(messages_[m].send.block))) continue;
        if (messages_[m].put) {
          check_put(m, violations);
        } else {
          check_pull(messages_[m], violations);
        }
      }
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
      const Storage& own = storages[block.rank];
      const bool comes_put = i.opcode == Opcode::recv && (i.flags & kPut) != 0;
      const bool names_source = i.opcode == Opcode::send && (i.flags & kPut) == 0;  // others read there
      if (reads_source(i.opcode) && !names_source)
        accesses_[{block.rank, own.at(i.source_buffer, i.source_chunk)}].push_back({e, false});
      if (writes_destination(i.opcode) && !comes_put)
        accesses_[{block.rank, own.at(i.destination_buffer, i.destination_chunk)}].push_back({e, true});
      for (const std::uint32_t cause : order_.causes(at).first(i.receive_count)) {
        const Event send = order_.events()[cause];
        const std::uint32_t rank = network_.blocks[send.block].rank;
        const Instruction& sender = network_.blocks[send.block].instructions[send.instruction];
        const PutPlace place = comes_put
                                   ? PutPlace{block.rank, own.at(i.destination_buffer, i.destination_chunk)}
                                   : PutPlace{rank, slice_of(sender, storages[rank])};
        at_[place].push_back(messages_.size());
        messages_.push_back({send, e, comes_put, place, length_of(network_, parts_, rank, sender, 0)});
      }
    }
  }

  // What the sending instruction of a pull names: what it wrote, if it writes.
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

  void check_pull(const Message& pull, std::vector<Violation>& violations) {
    const auto found = accesses_.find(pull.place);
    if (found == accesses_.end()) return;
    for (const auto& [access, writes] : found->second) {
      if (!writes || same(access, pull.send)) continue;
      if (lies_before(access, pull.send) || lies_before(pull.receive, access)) continue;
      add(violations, "pull", access,
          "writes what " + name_of(pull.receive) + " reads here, sent by " + name_in_rank(pull.send));
    }
  }

  void check_put(std::size_t number, std::vector<Violation>& violations) {
    const Message& put = messages_[number];
    const std::string while_put =
        "while " + name_of(put.send) + " may put there what " + name_in_rank(put.receive) + " receives";
    if (const auto found = accesses_.find(put.place); found != accesses_.end()) {
      for (const auto& [access, writes] : found->second) {
        if (lies_before(access, put.send) || lies_before(put.receive, access)) continue;
        add(violations, "put_order", access, (writes ? "writes a slice " : "reads a slice ") + while_put);
      }
    }
    for (const std::size_t m : at_[put.place]) {
      const Message& other = messages_[m];
      if (other.put ? m <= number : same(other.receive, put.send)) continue;
      if (lies_before(other.receive, put.send) || lies_before(put.receive, other.send)) continue;
      add(violations, "put_order", other.put ? other.send : other.receive,
          (other.put ? "puts into a slice of rank " : "reads a slice of rank ") +
              std::to_string(put.place.rank) + " " + while_put);
    }
  }

  std::string name_in_rank(const Event& e) const {
    return "block " + std::to_string(network_.blocks[e.block].block) + " instruction " +
           std::to_string(e.instruction);
  }
  std::string name_of(const Event& e) const {
    return "rank " + std::to_string(network_.blocks[e.block].rank) + " " + name_in_rank(e);
  }

  void add(std::vector<Violation>& violations, const char* rule, const Event& who, const std::string& does) {
    if (violations.size() >= kMaxViolations) return;
    violations.push_back(violation_at(
        rule, network_.blocks[who.block], who.instruction,
        does + ", and nothing orders them" + (parts_ == Parts::kUnequal ? " when parts are unequal" : "")));
  }

  const Network& network_;
  const Parts parts_;
  const ExecutionOrder order_;
  std::vector<std::uint32_t> group_;  // by block: the smallest block that it is connected with
  std::vector<std::uint32_t> member_;  // its number in the group
  std::vector<std::uint32_t> size_;  // of its group
  std::vector<std::uint64_t> first_word_;  // of its clocks; one more entry ends the last block
  std::vector<Message> messages_;
  std::map<PutPlace, std::vector<std::size_t>> at_;  // the messages whose bytes lie there
  std::map<PutPlace, std::vector<Touch>> accesses_;  // of instructions of the place's own rank
  std::vector<std::uint32_t> clocks_;
};

}  // namespace

void check_pulls(const Network& network, Parts parts, std::vector<Violation>& violations) {
  if (network.ranks[0].header->protocol != Protocol::kPull || network.links.empty()) return;
  Messages(network, parts).check(violations);
}

}  // namespace starling::stages
