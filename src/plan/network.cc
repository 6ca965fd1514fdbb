#include "plan/network.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace starling {
namespace {

class Linker {
 public:
  Linker(Network& network, std::vector<Violation>& violations) : network_(network), violations_(violations) {}

  std::uint32_t find(std::uint32_t source, std::uint32_t destination, std::uint32_t channel) {
    const auto [at, is_new] = index_.try_emplace({source, destination, channel}, network_.links.size());
    if (is_new) network_.links.push_back({source, destination, channel});
    return static_cast<std::uint32_t>(at->second);
  }

  void claim(std::uint32_t link, std::uint32_t Link::* end, std::uint32_t block, const char* does) {
    std::uint32_t& owner = network_.links[link].*end;
    if (owner != kNowhere) {
      const NetworkBlock& other = network_.blocks[owner];
      const NetworkBlock& self = network_.blocks[block];
      violations_.push_back({.rule = "one_block_per_connection",
                             .rank = self.rank,
                             .block = self.block,
                             .text = std::string(does) + " connection " + network_.links[link].name() +
                                     ", as block " + std::to_string(other.block) +
                                     " does; a connection has one sender and one receiver"});
      return;
    }
    owner = block;
  }

 private:
  Network& network_;
  std::vector<Violation>& violations_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, std::size_t> index_;
};

// Blocks that may be able to go on, each at most once.
class ReadyQueue {
 public:
  explicit ReadyQueue(std::size_t blocks) : queued_(blocks, true) {
    for (std::size_t b = blocks; b > 0; --b) stack_.push_back(static_cast<std::uint32_t>(b - 1));
  }
  void push(std::uint32_t block) {
    if (queued_[block]) return;
    queued_[block] = true;
    stack_.push_back(block);
  }
  bool empty() const { return stack_.empty(); }
  std::uint32_t pop() {
    const std::uint32_t block = stack_.back();
    stack_.pop_back();
    queued_[block] = false;
    return block;
  }

 private:
  std::vector<std::uint32_t> stack_;
  std::vector<bool> queued_;
};

class Executor {
 public:
  Executor(const Network& network, std::uint64_t slots, const std::function<void(const Event&)>& visit)
      : network_(network), slots_(slots), visit_(visit), ready_(network.blocks.size()) {
    run_.done.resize(network.blocks.size());
    run_.sent.resize(network.links.size());
    run_.received.resize(network.links.size());
  }

  Execution run() {
    while (!ready_.empty()) advance(ready_.pop());
    run_.finished = true;
    for (std::size_t b = 0; b < network_.blocks.size(); ++b) {
      if (run_.done[b] != network_.blocks[b].instructions.size()) run_.finished = false;
    }
    return std::move(run_);
  }

 private:
  void advance(std::uint32_t b) {
    const NetworkBlock& block = network_.blocks[b];
    const std::uint64_t length = block.instructions.size();
    while (run_.done[b] < length) {
      const Event event{b, static_cast<std::uint32_t>(run_.done[b])};
      const Instruction& i = block.instructions[event.instruction];
      if (!can_run(block, i)) return;
      if (visit_) visit_(event);
      ++run_.done[b];
      signal(block, i);
    }
  }

  bool can_run(const NetworkBlock& block, const Instruction& i) const {
    for (const std::uint32_t link : block.receives_of(i)) {
      if (run_.sent[link] == run_.received[link]) return false;
    }
    for (const std::uint32_t link : block.sends_of(i)) {
      if (run_.sent[link] - run_.received[link] >= slots_) return false;
    }
    for (const Dependency& d : block.dependencies_of(i)) {
      const std::uint32_t other = network_.block_of(block.rank, d.block);
      if (run_.done[other] <= d.instruction) return false;
    }
    return true;
  }

  void signal(const NetworkBlock& block, const Instruction& i) {
    for (const std::uint32_t link : block.receives_of(i)) {
      ++run_.received[link];
      ready_.push(network_.links[link].sender);
    }
    for (const std::uint32_t link : block.sends_of(i)) {
      ++run_.sent[link];
      run_.deepest = std::max(run_.deepest, run_.sent[link] - run_.received[link]);
      ready_.push(network_.links[link].receiver);
    }
    if ((i.flags & kHasDependents) == 0) return;
    for (std::uint32_t other = network_.first_block[block.rank]; other < network_.first_block[block.rank + 1];
         ++other) {
      ready_.push(other);
    }
  }

  const Network& network_;
  const std::uint64_t slots_;
  const std::function<void(const Event&)>& visit_;
  ReadyQueue ready_;
  Execution run_;
};

}  // namespace

std::string Link::name() const {
  return std::to_string(source) + "->" + std::to_string(destination) + " channel " + std::to_string(channel);
}

Network Network::of(std::span<const PlanView> ranks, std::vector<Violation>& violations) {
  Network network;
  network.geometry = Geometry::of(*ranks[0].header);
  network.ranks.assign(ranks.begin(), ranks.end());
  Linker linker(network, violations);
  for (std::uint32_t r = 0; r < ranks.size(); ++r) {
    const PlanView& view = ranks[r];
    const PlanHeader& header = *view.header;
    network.first_block.push_back(static_cast<std::uint32_t>(network.blocks.size()));
    for (std::uint32_t b = 0; b < header.block_count; ++b) {
      const BlockPlan& plan = view.blocks()[b];
      const std::uint32_t self = static_cast<std::uint32_t>(network.blocks.size());
      network.blocks.push_back(
          {.rank = r,
           .block = b,
           .instructions = {view.instructions() + plan.instruction_first, plan.instruction_count},
           .dependencies = {view.dependencies(), header.dependency_count},
           .receives = {},
           .sends = {}});
      NetworkBlock& block = network.blocks.back();
      for (std::uint32_t c = 0; c < plan.receive_count; ++c) {
        const Connection& connection = view.connections()[plan.receive_first + c];
        block.receives.push_back(linker.find(connection.peer, r, connection.channel));
        linker.claim(block.receives.back(), &Link::receiver, self, "receives on");
      }
      for (std::uint32_t c = 0; c < plan.send_count; ++c) {
        const Connection& connection = view.connections()[plan.send_first + c];
        block.sends.push_back(linker.find(r, connection.peer, connection.channel));
        linker.claim(block.sends.back(), &Link::sender, self, "sends on");
      }
      for (const Instruction& i : block.instructions) {
        network.largest_chunks = std::max<std::uint32_t>(network.largest_chunks, i.chunks);
      }
    }
  }
  network.first_block.push_back(static_cast<std::uint32_t>(network.blocks.size()));
  return network;
}

Execution execute(const Network& network, std::uint64_t slots,
                  const std::function<void(const Event&)>& visit) {
  return Executor(network, slots, visit).run();
}

}  // namespace starling
