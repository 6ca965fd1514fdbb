// Goal: a bound program of pulls does what its plan does, though it joins instructions, leaves out stores
// that nobody reads, and makes sums in other places: the same places are lent and named, the same values are
// put and told of, and the same lie in the buffers afterwards.
// Method: one tile of every block of every rank, of built-in plans and of some of one's own, in symbols: as
// the plan says it, and as device/bound_pull.h would do it. Scratch does not count: what is in it afterwards
// is nobody's.
// sanitize: address (one thread)
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "device/bind.h"
#include "plan/all_plans.h"
#include "plan/generate.h"
#include "plan/text.h"

namespace starling::device {
namespace {

constexpr uint64_t kChunk = 4096;
alignas(16) std::byte memory[3][1 << 20];  // only the addresses count

// What is at an address: the operands of a sum, in any order.
using Value = std::multiset<std::string>;

// What a block does, as others see it.
struct Effects {
  std::map<const std::byte*, Value> buffers;
  std::map<uint32_t, std::vector<std::tuple<const std::byte*, uint32_t>>> lent;  // by connection
  std::map<uint32_t, std::vector<std::tuple<const std::byte*, uint32_t, Value>>> told;
  std::map<uint32_t, std::vector<Value>> put;

  friend bool operator==(const Effects&, const Effects&) = default;
};

// Memory in symbols, and the messages that come.
class Block {
 public:
  Value at(const std::byte* address) {
    const auto found = effects_.buffers.find(address);
    if (found != effects_.buffers.end()) return found->second;
    return {"first " + std::to_string(address - memory[0])};
  }
  void store(const std::byte* address, Value value) { effects_.buffers[address] = std::move(value); }
  Value message(uint32_t connection, bool put) {
    const uint32_t number = received_[{connection, put}]++;
    return {(put ? "put " : "pulled ") + std::to_string(connection) + "." + std::to_string(number)};
  }
  void lend(uint32_t connection, const std::byte* place, uint32_t name) {
    effects_.lent[connection].emplace_back(place, name);
  }
  void send(uint32_t connection, bool put, const std::byte* address, uint32_t name, const Value& value) {
    if (put)
      effects_.put[connection].push_back(value);
    else
      effects_.told[connection].emplace_back(address, name, value);
  }
  Effects effects() const {
    Effects seen = effects_;
    std::erase_if(seen.buffers, [](const auto& entry) {
      return entry.first >= memory[2] && entry.first < memory[2] + sizeof(memory[2]);
    });
    return seen;
  }

 private:
  Effects effects_;
  std::map<std::pair<uint32_t, bool>, uint32_t> received_;
};

Value sum(std::vector<Value> operands, bool divided) {
  Value all;
  for (const Value& operand : operands) all.insert(operand.begin(), operand.end());
  if (divided) all.insert("divided");
  return all;
}

Operation operation_of(const PlanHeader& plan, bool one_buffer) {
  Operation op{};
  op.plan = &plan;
  const BufferKind kinds[] = {BufferKind::kInput, BufferKind::kOutput, BufferKind::kScratch};
  for (uint32_t k = 0; k < 3; ++k) op.buffers[uint32_t(kinds[k])].base = memory[one_buffer && k == 0 ? 1 : k];
  op.group_bytes = kChunk * plan.chunks_per_group;
  op.chunk_bytes = op.tile_bytes = kChunk;
  op.tile_count = 1;
  op.data_type = DataType::kFloat32;
  op.reduce_op = ReduceOp::kAvg;
  op.rank_count = plan.rank_count;
  return op;
}

Effects as_planned(const Operation& op, uint32_t b) {
  const PlanView plan{op.plan};
  const auto place = [&](BufferKind kind, uint32_t chunk) {
    const BufferBinding& buffer = op.buffers[uint32_t(kind)];
    return buffer.base + chunk_begin(op, buffer, kind, chunk);
  };
  Block block;
  const Instruction* first = plan.instructions() + plan.blocks()[b].instruction_first;
  for (const Instruction* i = first; i < first + plan.blocks()[b].instruction_count; ++i)
    if (lands(*i))
      block.lend(i->receive_first, place(i->destination_buffer, i->destination_chunk),
                 uint32_t(i->destination_buffer));
  for (const Instruction* i = first; i < first + plan.blocks()[b].instruction_count; ++i) {
    std::vector<Value> operands;
    if (reduces_into(i->opcode))
      operands.push_back(block.at(place(i->destination_buffer, i->destination_chunk)));
    for (uint32_t k = 0; receives(i->opcode) && k < i->receive_count; ++k)
      operands.push_back(block.message(i->receive_first + k, lands(*i)));
    if (reads_source(i->opcode)) operands.push_back(block.at(place(i->source_buffer, i->source_chunk)));
    const bool divided = (i->flags & kFinal) != 0 && operands.size() > 1 && op.reduce_op == ReduceOp::kAvg;
    const Value value = sum(operands, divided);
    const bool written = writes_destination(i->opcode);
    const std::byte* named = written ? place(i->destination_buffer, i->destination_chunk)
                                     : place(i->source_buffer, i->source_chunk);
    if (written) block.store(named, value);
    for (uint32_t k = 0; sends(i->opcode) && k < i->send_count; ++k)
      block.send(i->send_first + k, is_put(*i), named, uint32_t(offered_buffer(*i)), value);
  }
  return block.effects();
}

Effects as_bound(const BoundProgram& program, uint32_t b) {
  Block block;
  const auto source = [&](const BoundInstruction& i) { return i.source + b * uint64_t(i.source_step); };
  const auto destination = [&](const BoundInstruction& i) {
    return i.destination + b * uint64_t(i.destination_step);
  };
  const auto landing = [&](const BoundInstruction& i) {
    return lands_in_source(i) ? source(i) : destination(i);
  };
  for (uint32_t n = 0; n < program.count; ++n)
    if (const BoundInstruction& i = program.instructions[n]; lands(i) || lands_first(i))
      block.lend(i.receive_first, landing(i), i.sent_before);
  for (uint32_t n = 0; n < program.count; ++n) {
    const BoundInstruction& i = program.instructions[n];
    if (lands(i) || lands_first(i)) block.store(landing(i), block.message(i.receive_first, true));
    if (lands(i)) continue;
    std::vector<Value> operands;
    if (program.apart == n + 1)
      operands.push_back(block.at(program.added + b * uint64_t(program.added_step)));
    else if (reduces_into(i))
      operands.push_back(block.at(destination(i)));
    for (uint32_t k = 0; k < i.receive_count; ++k)
      operands.push_back(block.message(i.receive_first + k, false));
    if (i.source != nullptr) operands.push_back(block.at(source(i)));
    EXPECT_EQ(operands.size(), i.source_count);
    const bool divided = i.source_count > 1 && (i.received_before & kBoundFinal) != 0 && program.divisor != 1;
    const Value value = sum(operands, divided);
    if (keeps(i)) block.store(destination(i), value);
    for (uint32_t k = i.send_first; k < uint32_t(i.send_first + i.send_count); ++k)
      block.send(k, is_put(i), i.destination != nullptr ? destination(i) : source(i), i.sent_before, value);
  }
  return block.effects();
}

// How many programs were bound, and how many instructions of theirs are several of the plan's.
struct Seen {
  uint32_t bound = 0;
  uint32_t joined = 0;
};

void compare(const Plan& plan, bool one_buffer, Seen& seen) {
  for (uint32_t r = 0; r < plan.rank_count(); ++r) {
    SCOPED_TRACE("rank " + std::to_string(r));
    const Operation op = operation_of(*plan.header(r), one_buffer);
    const BoundProgram program = ProgramBinder(*plan.header(r), op).bind();
    if (program.count == 0) continue;
    ++seen.bound;
    uint32_t planned_in_all = 0;
    for (uint32_t n = 0; n < program.count; ++n) {
      planned_in_all += planned(program.instructions[n]);
      seen.joined += planned(program.instructions[n]) > 1;
    }
    EXPECT_EQ(planned_in_all, program.planned);
    for (uint32_t b = 0; b < plan.header(r)->block_count; ++b) {
      SCOPED_TRACE("block " + std::to_string(b));
      EXPECT_EQ(program.planned, PlanView{plan.header(r)}.blocks()[b].instruction_count);
      EXPECT_TRUE(as_planned(op, b) == as_bound(program, b));
    }
  }
}

TEST(Fused, DoesWhatThePlanDoes) {
  Seen seen;
  for (const BuiltIn& built_in : built_ins({2, 3, 4, 7, 9}, {1, 3})) {
    const Plan plan = generate(built_in.algorithm, built_in.request);
    if (plan.protocol() != Protocol::kPull) continue;
    SCOPED_TRACE(built_in.name());
    compare(plan, false, seen);
    const Collective collective = built_in.request.collective;
    if (plan.in_place() && collective == Collective::kAllReduce) compare(plan, true, seen);
  }
  EXPECT_GT(seen.bound, 500u);
  EXPECT_GT(seen.joined, 500u);
}

std::string root_of_three(const std::string& instructions) {
  return "starling-plan 1\nname own\ncollective reduce\nranks 3\nroot 0\nin_place 0\nprotocol pull\n"
         "chunks_per_group 1\ngroups 1 1\nrank 0 scratch 1\n  block 0\n" +
         instructions +
         "rank 1 scratch 0\n  block 0\n    0 send input[0] -> >0.0 size input[0] put\n"
         "rank 2 scratch 0\n  block 0\n    0 send input[0] -> >0.0 size input[0] put\n";
}

TEST(Fused, PlansOfOnesOwnToo) {
  Seen seen;
  // A sum that is made elsewhere, with what landed where it is made.
  compare(plan_from_text(root_of_three("    0 recv <1.0 -> scratch[0] size input[0] put\n"
                                       "    1 reduce input[0] -> scratch[0] size input[0]\n"
                                       "    2 recv <2.0 -> output[0] size input[0] put\n"
                                       "    3 reduce output[0] -> scratch[0] size input[0] final\n"
                                       "    4 copy scratch[0] -> output[0] size input[0]\n")),
          false, seen);
  // The same with the places changed.
  compare(plan_from_text(root_of_three("    0 recv <1.0 -> output[0] size input[0] put\n"
                                       "    1 reduce input[0] -> output[0] size input[0]\n"
                                       "    2 recv <2.0 -> scratch[0] size input[0] put\n"
                                       "    3 reduce scratch[0] -> output[0] size input[0] final\n")),
          false, seen);
  // What landed is read twice.
  compare(plan_from_text(root_of_three("    0 recv <1.0 -> scratch[0] size input[0] put\n"
                                       "    1 recv <2.0 -> output[0] size input[0] put\n"
                                       "    2 reduce scratch[0] -> output[0] size input[0]\n"
                                       "    3 reduce input[0] -> output[0] size input[0] final\n")),
          false, seen);
  // A sum that a peer is told of goes by its own name, not by that of what landed in an operand.
  compare(plan_from_text(
              "starling-plan 1\nname told\ncollective all_reduce\nranks 3\nroot 0\nin_place 0\n"
              "protocol pull\nchunks_per_group 1\ngroups 1 1\n"
              "rank 0 scratch 0\n  block 0\n    0 send input[0] -> >1.0 size input[0] put\n"
              "    1 recv <2.0 -> output[0] size input[0]\n"
              "rank 1 scratch 1\n  block 0\n    0 copy input[0] -> output[0] size input[0]\n"
              "    1 recv <0.0 -> scratch[0] size input[0] put\n"
              "    2 reduce_send scratch[0] -> output[0] >2.0 size input[0]\n"
              "    3 recv <2.0 -> output[0] size input[0]\n"
              "rank 2 scratch 0\n  block 0\n"
              "    0 recv_reduce_copy_send <1.0 input[0] -> output[0] >0.0 >1.0 size input[0] final\n"),
          false, seen);
  EXPECT_EQ(seen.bound, 4u * 3u);
  EXPECT_GE(seen.joined, 5u);
}

}  // namespace
}  // namespace starling::device
