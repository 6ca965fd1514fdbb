#include "plan/builder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/assert.h"
#include "base/error.h"
#include "plan/verify.h"

namespace starling {
namespace {

bool same(const Connection& a, const Connection& b) { return a.peer == b.peer && a.channel == b.channel; }

std::string text_of(const std::vector<Connection>& list) {
  std::string text;
  for (const Connection& c : list) {
    text += (text.empty() ? "" : " ") + std::to_string(c.peer) + "." + std::to_string(c.channel);
  }
  return text;
}

// A block's connections of one direction, each once, such that every fan is a run of neighbours. The widest
// fans are placed first; the narrower ones must then lie inside what is there, or be new.
class ConnectionTable {
 public:
  void place_all(std::vector<const std::vector<Connection>*> fans) {
    std::stable_sort(fans.begin(), fans.end(), [](auto* a, auto* b) { return a->size() > b->size(); });
    for (const std::vector<Connection>* fan : fans) place(*fan);
  }

  std::uint16_t first_of(const std::vector<Connection>& fan) const {
    const auto found = std::search(entries_.begin(), entries_.end(), fan.begin(), fan.end(), same);
    STARLING_ASSERT(found != entries_.end(), "a fan was not placed in its connection table");
    return static_cast<std::uint16_t>(found - entries_.begin());
  }

  const std::vector<Connection>& entries() const { return entries_; }

 private:
  void place(const std::vector<Connection>& fan) {
    if (std::search(entries_.begin(), entries_.end(), fan.begin(), fan.end(), same) != entries_.end()) return;
    for (const Connection& c : fan) {
      const auto taken = std::find_if(entries_.begin(), entries_.end(), [&](auto& e) { return same(e, c); });
      if (taken == entries_.end()) continue;
      throw Error(Code::invalid_argument,
                  "one instruction uses the connections " + text_of(fan) +
                      " together, others of its block use some of them in an order "
                      "or company that no table can hold: " +
                      text_of(entries_),
                  "list the connections of a fan in one order throughout a block");
    }
    entries_.insert(entries_.end(), fan.begin(), fan.end());
  }

  std::vector<Connection> entries_;
};

struct BlockTables {
  ConnectionTable receives;
  ConnectionTable sends;

  explicit BlockTables(const std::vector<Step>& steps) {
    std::vector<const std::vector<Connection>*> in;
    std::vector<const std::vector<Connection>*> out;
    for (const Step& step : steps) {
      if (!step.receives.empty()) in.push_back(&step.receives);
      if (!step.sends.empty()) out.push_back(&step.sends);
    }
    receives.place_all(std::move(in));
    sends.place_all(std::move(out));
  }
};

// Whoever measures a slice by a buffer of the caller gets the length right also for the last, shorter chunks.
Operand default_size(const Step& step) {
  for (const Operand& operand : {step.destination, step.source}) {
    if (operand.buffer == BufferKind::kInput || operand.buffer == BufferKind::kOutput) return operand;
  }
  if (step.destination.buffer != BufferKind::kNone) return step.destination;
  return step.source;
}

template <typename T>
void check_range(std::uint64_t value, const char* what) {
  if (value > static_cast<T>(-1)) {
    throw Error(Code::invalid_argument,
                std::string("a plan has room for fewer ") + what + " than " + std::to_string(value),
                "cut the program into smaller plans");
  }
}

// Appends trivially copyable values to a vector of words.
class Writer {
 public:
  template <typename T>
  void put(const T& value) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof(T));
    std::memcpy(bytes_.data() + at, &value, sizeof(T));
  }

  std::vector<std::uint64_t> words() const {
    STARLING_ASSERT(bytes_.size() % 8 == 0, "a part of a plan is not a whole number of words");
    std::vector<std::uint64_t> words(bytes_.size() / 8);
    std::memcpy(words.data(), bytes_.data(), bytes_.size());
    return words;
  }
  std::size_t size() const { return bytes_.size(); }

 private:
  std::vector<std::byte> bytes_;
};

Instruction encode(const Step& step, const BlockTables& tables, bool has_dependents,
                   std::uint32_t dependency_first) {
  check_range<std::uint8_t>(step.receives.size(), "operands of a fan-in");
  check_range<std::uint8_t>(step.sends.size(), "operands of a fan-out");
  check_range<std::uint16_t>(step.after.size(), "dependencies of an instruction");
  check_range<std::uint16_t>(step.chunks, "chunks of an instruction");
  check_range<std::uint8_t>(step.local_position, "operands before the local one");
  Instruction i{};
  i.opcode = step.opcode;
  i.flags = static_cast<std::uint8_t>((has_dependents ? kHasDependents : 0) | (step.final ? kFinal : 0) |
                                      (step.put ? kPut : 0));
  i.source_buffer = step.source.buffer;
  i.source_chunk = step.source.chunk;
  i.destination_buffer = step.destination.buffer;
  i.destination_chunk = step.destination.chunk;
  const Operand size = step.size.buffer == BufferKind::kNone ? default_size(step) : step.size;
  i.size_buffer = size.buffer;
  i.size_chunk = size.chunk;
  i.chunks = static_cast<std::uint16_t>(step.chunks);
  i.local_position = static_cast<std::uint8_t>(step.local_position);
  i.receive_first = step.receives.empty() ? kNoConnection : tables.receives.first_of(step.receives);
  i.receive_count = static_cast<std::uint8_t>(step.receives.size());
  i.send_first = step.sends.empty() ? kNoConnection : tables.sends.first_of(step.sends);
  i.send_count = static_cast<std::uint8_t>(step.sends.size());
  i.dependency_count = static_cast<std::uint16_t>(step.after.size());
  i.dependency_first = step.after.empty() ? 0 : dependency_first;
  return i;
}

}  // namespace

PlanBuilder::PlanBuilder(std::string name, const Geometry& geometry)
    : name_(std::move(name)), geometry_(geometry) {
  if (geometry.rank_count < 1 || geometry.rank_count > kMaxPlanRanks) {
    throw Error(Code::invalid_argument, "a plan for " + std::to_string(geometry.rank_count) + " ranks",
                "use 1 to " + std::to_string(kMaxPlanRanks) + " ranks");
  }
  if (geometry.root >= geometry.rank_count) {
    throw Error(
        Code::invalid_argument,
        "root " + std::to_string(geometry.root) + " of " + std::to_string(geometry.rank_count) + " ranks",
        "name a root below the number of ranks");
  }
  if (geometry.chunks_per_group == 0) {
    throw Error(Code::invalid_argument, "a plan with 0 chunks in a group",
                "cut each group into 1 chunk or more");
  }
  ranks_.resize(geometry.rank_count);
  for (Rank& rank : ranks_) rank.blocks.resize(1);
}

std::uint32_t PlanBuilder::add(std::uint32_t rank, std::uint32_t block, Step step) {
  STARLING_ASSERT(rank < ranks_.size(), "a step for a rank that the plan does not have");
  set_blocks(rank, block + 1);
  if (step.opcode == Opcode::nop && step.size.buffer == BufferKind::kNone) {
    // Something that is never empty while the operation is not.
    step.size = geometry_.exists(BufferKind::kOutput, rank) ? output(0) : input(0);
  }
  std::vector<Step>& steps = ranks_[rank].blocks[block].steps;
  steps.push_back(std::move(step));
  return static_cast<std::uint32_t>(steps.size() - 1);
}

void PlanBuilder::rename_ranks(const std::vector<std::uint16_t>& order) {
  std::vector<bool> named(ranks_.size(), false);
  for (const std::uint16_t rank : order)
    if (rank < named.size()) named[rank] = true;
  if (order.size() != ranks_.size() || std::find(named.begin(), named.end(), false) != named.end())
    throw Error(Code::invalid_argument, "an order of ranks that does not name each of them once",
                "pass a permutation of the plan's ranks");
  const std::uint32_t cut = geometry_.chunks_per_group;
  const auto rename_operand = [&](Operand& operand, std::uint32_t chunks) {
    const bool parts = (operand.buffer == BufferKind::kInput && geometry_.input_groups > 1) ||
                       (operand.buffer == BufferKind::kOutput && geometry_.output_groups > 1);
    if (!parts) return;
    STARLING_ASSERT(operand.chunk % cut + chunks <= cut, "an instruction spans parts that are apart now");
    operand.chunk = order[operand.chunk / cut] * cut + operand.chunk % cut;
  };
  std::vector<Rank> renamed(ranks_.size());
  for (std::size_t place = 0; place < ranks_.size(); ++place) {
    for (Block& block : ranks_[place].blocks) {
      for (Step& step : block.steps) {
        for (auto* connections : {&step.receives, &step.sends})
          for (Connection& connection : *connections) connection.peer = order[connection.peer];
        for (Operand* operand : {&step.source, &step.destination, &step.size})
          rename_operand(*operand, step.chunks);
      }
    }
    renamed[order[place]] = std::move(ranks_[place]);
  }
  ranks_ = std::move(renamed);
  geometry_.root = order[geometry_.root];
}

void PlanBuilder::set_scratch(std::uint32_t rank, std::uint32_t chunks) {
  ranks_.at(rank).scratch_chunks = chunks;
}

void PlanBuilder::set_blocks(std::uint32_t rank, std::uint32_t blocks) {
  if (blocks > kMaxPlanBlocks) {
    throw Error(
        Code::invalid_argument, "a plan with " + std::to_string(blocks) + " blocks on a rank",
        "use at most " + std::to_string(kMaxPlanBlocks) + ": all blocks of a rank must be resident together");
  }
  std::vector<Block>& all = ranks_.at(rank).blocks;
  if (all.size() < blocks) all.resize(blocks);
}

std::vector<std::uint64_t> PlanBuilder::lay_out(std::uint32_t rank) const {
  const std::vector<Block>& blocks = ranks_[rank].blocks;
  std::vector<BlockTables> tables;
  std::vector<std::vector<bool>> has_dependents;
  for (const Block& block : blocks) {
    tables.emplace_back(block.steps);
    has_dependents.emplace_back(block.steps.size(), false);
  }
  PlanHeader header{};
  header.magic = kPlanMagic;
  header.version = kPlanVersion;
  header.collective = geometry_.collective;
  header.in_place = geometry_.in_place;
  header.rank = static_cast<std::uint16_t>(rank);
  header.rank_count = static_cast<std::uint16_t>(geometry_.rank_count);
  header.block_count = static_cast<std::uint16_t>(blocks.size());
  header.chunks_per_group = geometry_.chunks_per_group;
  header.input_groups = geometry_.input_groups;
  header.output_groups = geometry_.output_groups;
  header.scratch_chunks = ranks_[rank].scratch_chunks;
  header.root = static_cast<std::uint16_t>(geometry_.root);
  header.protocol = protocol_;
  header.tile_bytes = tile_bytes_;

  std::vector<BlockPlan> block_plans;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    BlockPlan plan{};
    plan.instruction_first = header.instruction_count;
    plan.instruction_count = static_cast<std::uint32_t>(blocks[b].steps.size());
    plan.receive_first = header.connection_count;
    check_range<std::uint16_t>(tables[b].receives.entries().size() + 1, "connections of a block");
    check_range<std::uint16_t>(tables[b].sends.entries().size() + 1, "connections of a block");
    plan.receive_count = static_cast<std::uint16_t>(tables[b].receives.entries().size());
    plan.send_first = plan.receive_first + plan.receive_count;
    plan.send_count = static_cast<std::uint16_t>(tables[b].sends.entries().size());
    header.instruction_count += plan.instruction_count;
    header.connection_count += plan.receive_count + plan.send_count;
    for (const Step& step : blocks[b].steps) {
      header.dependency_count += static_cast<std::uint32_t>(step.after.size());
      for (const Dependency& d : step.after) {
        if (d.block < blocks.size() && d.instruction < blocks[d.block].steps.size()) {
          has_dependents[d.block][d.instruction] = true;
        }
      }
    }
    block_plans.push_back(plan);
  }
  const std::uint64_t total = bytes_of(header);
  check_range<std::uint32_t>(total, "bytes");
  header.total_bytes = static_cast<std::uint32_t>(total);

  Writer writer;
  writer.put(header);
  for (const BlockPlan& plan : block_plans) writer.put(plan);
  for (const BlockTables& table : tables) {
    for (const Connection& c : table.receives.entries()) writer.put(c);
    for (const Connection& c : table.sends.entries()) writer.put(c);
  }
  if (header.connection_count % 2 != 0) writer.put(Connection{});
  std::uint32_t dependency_first = 0;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    for (std::size_t i = 0; i < blocks[b].steps.size(); ++i) {
      const Step& step = blocks[b].steps[i];
      writer.put(encode(step, tables[b], has_dependents[b][i], dependency_first));
      dependency_first += static_cast<std::uint32_t>(step.after.size());
    }
  }
  for (const Block& block : blocks) {
    for (const Step& step : block.steps) {
      for (const Dependency& d : step.after) writer.put(d);
    }
  }
  STARLING_ASSERT(writer.size() == total, "a plan's part is not as long as its header says");
  return writer.words();
}

Plan PlanBuilder::build() const {
  std::vector<std::uint64_t> words;
  std::vector<std::size_t> offsets{0};
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    const std::vector<std::uint64_t> part = lay_out(rank);
    words.insert(words.end(), part.begin(), part.end());
    offsets.push_back(words.size());
  }
  Plan plan(name_, std::move(words), std::move(offsets), postcondition_);
  plan.seal();
  return plan;
}

}  // namespace starling
