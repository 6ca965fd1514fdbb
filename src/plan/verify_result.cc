// Result: one execution on symbols instead of numbers. A chunk's value is the multiset of the input chunks
// that were reduced into it; at the end every output chunk must be what the collective says. Blocks being
// free of races, one execution speaks for all.
#include <deque>
#include <limits>
#include <string>
#include <unordered_map>

#include "base/hash.h"
#include "plan/verify_stages.h"

namespace starling::stages {
namespace {

using ValueId = std::uint32_t;
constexpr ValueId kUninitialised = 0;

// A leaf is an input chunk; every other value is the reduction of two. `contents` adds up random words of the
// leaves, so equal multisets have equal contents in any order of reduction; `order` also tells apart order
// and brackets, and whether leaves were read as input.
struct Value {
  std::uint64_t contents[2] = {0, 0};
  std::uint64_t order = 0;
  std::uint64_t count = 0;      // leaves, with repetition
  std::uint64_t read_count =
      0;  // those of them that came through the input operand, where premul_sum multiplies
  ValueId left = kUninitialised;
  ValueId right = kUninitialised;
  std::uint64_t leaf = 0;       // if it has no operands: rank and chunk of the input
  bool is_read_as_input = false;  // of a leaf
  bool is_final = false;
};

class Values {
 public:
  Values() { all_.emplace_back(); }

  ValueId leaf(std::uint64_t name, bool is_read_as_input) {
    const auto [at, is_new] =
        leaves_.try_emplace(name * 2 + is_read_as_input, static_cast<ValueId>(all_.size()));
    if (is_new) {
      Value value;
      value.contents[0] = mix64(name * 2 + 1);
      value.contents[1] = mix64(~value.contents[0]);
      value.order = hash_combine(value.contents[0], is_read_as_input);
      value.count = 1;
      value.read_count = is_read_as_input;
      value.leaf = name;
      value.is_read_as_input = is_read_as_input;
      all_.push_back(value);
    }
    return at->second;
  }

  ValueId reduced(ValueId left, ValueId right) {
    const Value& a = all_[left];
    const Value& b = all_[right];
    Value value;
    for (int word = 0; word < 2; ++word) value.contents[word] = a.contents[word] + b.contents[word];
    value.order = hash_combine(a.order, b.order);  // also min and max of NaN depend on the order
    value.count = a.count > std::numeric_limits<std::uint64_t>::max() - b.count
                      ? std::numeric_limits<std::uint64_t>::max()
                      : a.count + b.count;
    // Once counts overflow nothing is as a postcondition wants it.
    value.read_count = a.read_count + b.read_count;
    value.left = left;
    value.right = right;
    all_.push_back(value);
    return static_cast<ValueId>(all_.size() - 1);
  }

  ValueId finished(ValueId id) {
    Value value = all_[id];
    value.is_final = true;
    if (value.left == kUninitialised) value.left = id;  // a leaf: keep the way back to its name
    all_.push_back(value);
    return static_cast<ValueId>(all_.size() - 1);
  }

  const Value& operator[](ValueId id) const { return all_[id]; }

 private:
  std::vector<Value> all_;
  std::unordered_map<std::uint64_t, ValueId> leaves_;
};

struct Names {
  std::uint64_t chunks;  // of the input

  std::uint64_t leaf(std::uint32_t rank, std::uint64_t chunk) const { return rank * chunks + chunk; }
  std::string text(std::uint64_t leaf) const {
    return "rank " + std::to_string(leaf / chunks) + " input[" + std::to_string(leaf % chunks) + "]";
  }
};

class Symbols {
 public:
  Symbols(const Network& network, const Postcondition* postcondition, std::vector<Violation>& violations)
      : network_(network),
        postcondition_(postcondition),
        violations_(violations),
        reduces_(traits_of(network.geometry.collective).reduces),
        names_{network.geometry.chunks(BufferKind::kInput)},
        under_way_(network.links.size()) {
    for (std::uint32_t r = 0; r < network.ranks.size(); ++r) {
      storage_.emplace_back(network.geometry, r, network.ranks[r].header->scratch_chunks);
      memory_.emplace_back(storage_[r].size(), kUninitialised);
      if (!network.geometry.exists(BufferKind::kInput, r)) continue;
      for (std::uint64_t chunk = 0; chunk < names_.chunks; ++chunk) {
        memory_[r][storage_[r].at(BufferKind::kInput, chunk)] = values_.leaf(names_.leaf(r, chunk), false);
      }
    }
  }

  void run() {
    execute(network_, kUnboundedSlots, [this](const Event& e) {
      if (violations_.size() < kMaxViolations) step(e);
    });
  }

  void check_outputs() {
    const Geometry& g = network_.geometry;
    if (!violations_.empty()) return;
    if (g.collective == Collective::kCustom) return check_postcondition();
    add_up_inputs();
    for (std::uint32_t r = 0; r < network_.ranks.size(); ++r) {
      if (!g.exists(BufferKind::kOutput, r)) continue;
      for (std::uint64_t chunk = 0; chunk < g.chunks(BufferKind::kOutput); ++chunk) {
        check_output(r, chunk);
      }
    }
  }

 private:
  // The order of a fan-in: received operands before the local one, the local one, the rest; from left to
  // right.
  void step(const Event& e) {
    const NetworkBlock& block = network_.blocks[e.block];
    const Instruction& i = block.instructions[e.instruction];
    std::vector<std::vector<ValueId>> operands;
    for (const std::uint32_t link : block.receives_of(i)) {
      operands.push_back(std::move(under_way_[link].front()));
      under_way_[link].pop_front();
    }
    if (reads_source(i.opcode)) {
      operands.insert(operands.begin() + i.local_position, read(block, e, i.source_buffer, i.source_chunk));
    }
    if (reduces_into(i.opcode))
      operands.insert(operands.begin(), read(block, e, i.destination_buffer, i.destination_chunk));
    if (operands.empty()) return;
    std::vector<ValueId> result = std::move(operands.front());
    for (std::size_t next = 1; next < operands.size(); ++next) {
      for (std::size_t u = 0; u < result.size(); ++u)
        result[u] = reduce(block, e, result[u], operands[next][u]);
    }
    if ((i.flags & kFinal) != 0) {
      for (ValueId& value : result) value = finish(block, e, value);
    }
    if (writes_destination(i.opcode)) write(block, i.destination_buffer, i.destination_chunk, result);
    for (const std::uint32_t link : block.sends_of(i)) under_way_[link].push_back(result);
  }

  std::vector<ValueId> read(const NetworkBlock& block, const Event& e, BufferKind buffer,
                            std::uint32_t chunk) {
    std::vector<ValueId> values(block.instructions[e.instruction].chunks);
    for (std::size_t u = 0; u < values.size(); ++u) {
      ValueId id = memory_[block.rank][storage_[block.rank].at(buffer, chunk) + u];
      if (id == kUninitialised) {
        add(block, e, "uninitialised",
            "reads " + operand_name(buffer, chunk + u, 1) + " before anything wrote it");
      } else if (reduces_ && buffer == BufferKind::kInput) {
        if (values_[id].left != kUninitialised || values_[id].is_read_as_input) {
          add(block, e, "input_overwritten",
              "reads " + operand_name(buffer, chunk + u, 1) +
                  " as input, but in place it was overwritten before; read the output");
        } else {
          id = values_.leaf(values_[id].leaf, true);
        }
      }
      values[u] = id;
    }
    return values;
  }

  void write(const NetworkBlock& block, BufferKind buffer, std::uint32_t chunk,
             const std::vector<ValueId>& values) {
    for (std::size_t u = 0; u < values.size(); ++u)
      memory_[block.rank][storage_[block.rank].at(buffer, chunk) + u] = values[u];
  }

  ValueId reduce(const NetworkBlock& block, const Event& e, ValueId left, ValueId right) {
    if (values_[left].is_final || values_[right].is_final) {
      add(block, e, "final_is_last",
          "reduces a value that an instruction flagged final has already finished");
    }
    return values_.reduced(left, right);
  }

  ValueId finish(const NetworkBlock& block, const Event& e, ValueId id) {
    if (values_[id].is_final)
      add(block, e, "final_once", "is flagged final, but its value was final before: avg would divide twice");
    return values_.finished(id);
  }

  void add(const NetworkBlock& block, const Event& e, const char* rule, const std::string& text) {
    const Opcode opcode = block.instructions[e.instruction].opcode;
    violations_.push_back(
        violation_at(rule, block, e.instruction,
                     std::string(kOpcodeTable[static_cast<std::uint32_t>(opcode)].name) + " " + text));
  }

  // sums_[chunk]: contents of the reduction of this input chunk over all ranks.
  void add_up_inputs() {
    if (!reduces_) return;
    sums_.resize(names_.chunks);
    for (std::uint64_t chunk = 0; chunk < names_.chunks; ++chunk) {
      Value& sum = sums_[chunk];
      for (std::uint32_t r = 0; r < network_.ranks.size(); ++r) {
        const Value& leaf = values_[values_.leaf(names_.leaf(r, chunk), true)];
        add_leaf(sum, leaf);
      }
    }
  }

  static void add_leaf(Value& sum, const Value& leaf) {
    for (int word = 0; word < 2; ++word) sum.contents[word] += leaf.contents[word];
    sum.count += leaf.count;
  }

  static bool same(const Value& a, const Value& b) {
    return a.contents[0] == b.contents[0] && a.contents[1] == b.contents[1] && a.count == b.count;
  }

  void check_postcondition() {
    if (postcondition_ == nullptr) return;
    for (const Holding& holding : *postcondition_) {
      for (std::uint32_t k = 0; k < holding.chunks; ++k) check_holding(holding, k);
    }
  }

  void check_holding(const Holding& holding, std::uint32_t k) {
    Value wanted;
    for (const Term& term : holding.terms) {
      const std::uint32_t first = term.rank == kEveryRank ? 0 : term.rank;
      const std::uint32_t last = term.rank == kEveryRank ? network_.geometry.rank_count - 1 : term.rank;
      for (std::uint32_t r = first; r <= last; ++r)
        add_leaf(wanted, values_[values_.leaf(names_.leaf(r, term.chunk + k), false)]);
    }
    const std::uint32_t chunk = holding.chunk + k;
    const ValueId id = memory_[holding.rank][storage_[holding.rank].at(BufferKind::kOutput, chunk)];
    if (same(values_[id], wanted)) return;
    report(holding.rank, "postcondition",
           operand_name(BufferKind::kOutput, chunk, 1) + " holds " + contents_of(id) + "; it should hold " +
               wanted_text(holding, k));
  }

  std::string wanted_text(const Holding& holding, std::uint32_t k) const {
    std::string text;
    for (const Term& term : holding.terms) {
      text += text.empty() ? "" : " + ";
      text += term.rank == kEveryRank
                  ? "input[" + std::to_string(term.chunk + k) + "] of every rank, once each"
                  : names_.text(names_.leaf(term.rank, term.chunk + k));
    }
    return text;
  }

  // The input chunk whose value, or whose reduction over all ranks, belongs into an output chunk.
  struct Origin {
    std::uint32_t rank;  // unused for reductions
    std::uint64_t chunk;
  };
  Origin origin_of(std::uint32_t rank, std::uint64_t chunk) const {
    const Geometry& g = network_.geometry;
    const std::uint64_t per_group = g.chunks_per_group;
    const std::uint32_t group = static_cast<std::uint32_t>(chunk / per_group);
    const std::uint64_t inside = chunk % per_group;
    switch (g.collective) {
      case Collective::kAllGather:
      case Collective::kGather: return {group, inside};
      case Collective::kReduceScatter: return {0, rank * per_group + inside};
      case Collective::kAllToAll: return {group, rank * per_group + inside};
      case Collective::kBroadcast: return {g.root, chunk};
      case Collective::kScatter: return {g.root, rank * per_group + inside};
      default: return {0, chunk};  // all_reduce, reduce, barrier; send_recv comes from rank 0
    }
  }

  void check_output(std::uint32_t rank, std::uint64_t chunk) {
    const ValueId id = memory_[rank][storage_[rank].at(BufferKind::kOutput, chunk)];
    const Value& is = values_[id];
    const Origin origin = origin_of(rank, chunk);
    const Value& wanted =
        reduces_ ? sums_[origin.chunk] : values_[values_.leaf(names_.leaf(origin.rank, origin.chunk), false)];
    const std::string place = operand_name(BufferKind::kOutput, chunk, 1);
    if (!same(is, wanted) || (reduces_ && is.read_count != is.count)) {
      const std::string right = reduces_
                                    ? "input[" + std::to_string(origin.chunk) + "] of every rank, once each"
                                    : names_.text(names_.leaf(origin.rank, origin.chunk));
      report(rank, "postcondition", place + " holds " + contents_of(id) + "; it should hold " + right);
    } else if (reduces_ && !is.is_final) {
      report(rank, "final_missing", place + " was never final: avg would not divide it");
    } else if (network_.geometry.collective == Collective::kAllReduce) {
      check_order(rank, chunk, is);
    }
  }

  // Ranks that bracket a sum differently get different bits.
  void check_order(std::uint32_t rank, std::uint64_t chunk, const Value& value) {
    const auto [at, is_first] = orders_.try_emplace(chunk, value.order);
    if (is_first || at->second == value.order) return;
    report(rank, "same_order",
           operand_name(BufferKind::kOutput, chunk, 1) +
               " is reduced in another order than on rank 0: floating-point results would differ");
  }

  std::string contents_of(ValueId id) const {
    if (id == kUninitialised) return "nothing";
    constexpr std::size_t kMostNamed = 8;
    std::vector<ValueId> open{id};
    std::string text;
    std::size_t named = 0;
    while (!open.empty() && named < kMostNamed) {
      const Value& value = values_[open.back()];
      open.pop_back();
      if (value.left != kUninitialised) {
        if (value.right != kUninitialised) open.push_back(value.right);
        open.push_back(value.left);
        continue;
      }
      text += (named++ == 0 ? "" : " + ") + names_.text(value.leaf);
      if (reduces_ && network_.geometry.collective != Collective::kCustom && !value.is_read_as_input)
        text += " (not read as input, so premul_sum would not multiply it)";
    }
    return values_[id].count > named ? text + " + more, " + std::to_string(values_[id].count) + " in all"
                                     : text;
  }

  void report(std::uint32_t rank, const char* rule, std::string text) {
    if (violations_.size() < kMaxViolations)
      violations_.push_back({.rule = rule, .rank = rank, .text = std::move(text)});
  }

  const Network& network_;
  const Postcondition* postcondition_;
  std::vector<Violation>& violations_;
  const bool reduces_;
  const Names names_;
  Values values_;
  std::vector<Storage> storage_;
  std::vector<std::vector<ValueId>> memory_;  // per rank, by chunk
  std::vector<std::deque<std::vector<ValueId>>> under_way_;  // per link
  std::vector<Value> sums_;
  std::unordered_map<std::uint64_t, std::uint64_t> orders_;  // by output chunk, as the first rank has it
};

}  // namespace

void check_result(const Network& network, const Postcondition* postcondition,
                  std::vector<Violation>& violations) {
  Symbols symbols(network, postcondition, violations);
  symbols.run();
  symbols.check_outputs();
}

}  // namespace starling::stages
