#include "comm/named_steps.h"

#include <algorithm>
#include <optional>

namespace starling {
namespace {

std::byte* address_of(const Operation& op, BufferKind kind, uint32_t chunk) {
  const BufferBinding& buffer = op.buffers[uint32_t(kind)];
  return buffer.base + chunk_begin(op, buffer, kind, chunk);
}

uint64_t length_of(const Operation& op, const Instruction& i, uint32_t k) {
  return chunk_length(op, op.buffers[uint32_t(i.size_buffer)], i.size_buffer, i.size_chunk + k);
}

// What the operation reads and writes of its caller's buffers: touch(begin, end, writes, instruction).
// Scratch is nobody's but the plan's: it never lies over a buffer.
template <class F>
void each_touch(const Operation& op, F&& touch) {
  const PlanView plan{op.plan};
  for (uint32_t n = 0; n < op.plan->instruction_count; ++n) {
    const Instruction& i = plan.instructions()[n];
    const auto slice = [&](BufferKind kind, uint32_t chunk, bool writes) {
      for (uint32_t k = 0; kind != BufferKind::kScratch && k < i.chunks; ++k) {
        std::byte* begin = address_of(op, kind, chunk + k);
        if (const uint64_t bytes = length_of(op, i, k); bytes != 0) touch(begin, begin + bytes, writes, n);
      }
    };
    if (reads_source(i.opcode)) slice(i.source_buffer, i.source_chunk, false);
    if (writes_destination(i.opcode)) slice(i.destination_buffer, i.destination_chunk, true);
  }
}

struct Reach {
  std::byte* begin = nullptr;
  std::byte* end = nullptr;

  void add(std::byte* first, std::byte* last) {
    begin = end == nullptr ? first : std::min(begin, first);
    end = std::max(end, last);
  }
  bool meets(const Reach& other) const { return begin < other.end && other.begin < end; }
};
struct Reaches {
  Reach read, written;
};
Reaches reaches_of(const Operation& op) {
  Reaches reaches;
  each_touch(op, [&](std::byte* begin, std::byte* end, bool writes, uint32_t) {
    (writes ? reaches.written : reaches.read).add(begin, end);
  });
  return reaches;
}

bool all_carried(const PlanView& plan, uint32_t first, uint32_t count, const std::vector<bool>& carried) {
  const Connection* connections = plan.connections() + first;
  return std::all_of(connections, connections + count,
                     [&](const Connection& connection) { return carried[connection.peer]; });
}

// Where the messages of instruction `n` are among those of its block's connection `c`: in each tile all of
// the connection's come in the order of the instructions. None: they are not equally far apart, since others
// run out of tiles before it.
struct Spacing {
  uint64_t before;
  uint64_t stride;
};
std::optional<Spacing> spacing_of(const Operation& op, const BlockPlan& block, uint32_t n, uint32_t c,
                                  bool sent) {
  const Instruction* instructions = PlanView{op.plan}.instructions() + block.instruction_first;
  const uint64_t own = message_count(op, instructions[n]);
  Spacing spacing{0, 0};
  for (uint32_t m = 0; m < block.instruction_count; ++m) {
    const Instruction& i = instructions[m];
    const bool uses = sent ? sends(i.opcode) && c - i.send_first < i.send_count
                           : receives(i.opcode) && c - i.receive_first < i.receive_count;
    const uint64_t messages = uses ? message_count(op, i) : 0;
    if (messages == 0) continue;
    if (messages + (m > n) < own) return std::nullopt;
    spacing.before += m < n;
    ++spacing.stride;
  }
  return spacing;
}

}  // namespace

bool conflict(const Operation& a, const Operation& b) {
  const Reaches of_a = reaches_of(a), of_b = reaches_of(b);
  return of_a.written.meets(of_b.written) || of_a.written.meets(of_b.read) || of_a.read.meets(of_b.written);
}

void NamedSteps::find(const Operation& op, const std::vector<bool>& carried) {
  hints_ = 0;
  steps_.clear();
  find_touches(op);
  judge_touches();
  hints_ = safe_hints(op, carried);
  const PlanView plan{op.plan};
  for (uint32_t b = 0; b < op.plan->block_count; ++b) {
    const BlockPlan& block = plan.blocks()[b];
    for (uint32_t n = 0; n < block.instruction_count; ++n) {
      const Instruction& i = plan.instructions()[block.instruction_first + n];
      const bool named = is_by_reference(hints_, i) &&
                         all_carried(plan, block.send_first + i.send_first, i.send_count, carried);
      if (named) add(op, block, n, true);
      // What is passed on as it came would be copied from there into a slot.
      const bool moves = i.opcode == Opcode::recv || (i.opcode == Opcode::recv_copy_send && named);
      if (moves && i.chunks == 1 && i.destination_buffer == BufferKind::kOutput && i.receive_count == 1 &&
          !touched_by_others_[block.instruction_first + n] &&
          all_carried(plan, block.receive_first + i.receive_first, 1, carried))
        add(op, block, n, false);
    }
  }
  for (const NamedStep& step : steps_)
    if (!step.sends) hints_ |= kInPlace;
}

void NamedSteps::find_touches(const Operation& op) {
  touches_.clear();
  each_touch(op, [&](std::byte* begin, std::byte* end, bool writes, uint32_t n) {
    touches_.push_back({begin, end, writes, n});
  });
  written_by_others_.assign(op.plan->instruction_count, false);
  touched_by_others_.assign(op.plan->instruction_count, false);
}

// In the order of addresses: each with those that begin before it ends. They are few: plans read a slice
// several times at most.
void NamedSteps::judge_touches() {
  std::sort(touches_.begin(), touches_.end(),
            [](const Touch& a, const Touch& b) { return a.begin < b.begin; });
  const auto meet = [&](const Touch& a, const Touch& b) {
    if (a.instruction == b.instruction) return;
    touched_by_others_[a.instruction] = touched_by_others_[b.instruction] = true;
    if (b.writes) written_by_others_[a.instruction] = true;
    if (a.writes) written_by_others_[b.instruction] = true;
  };
  for (size_t k = 0; k < touches_.size(); ++k)
    for (size_t j = k + 1; j < touches_.size() && touches_[j].begin < touches_[k].end; ++j)
      meet(touches_[k], touches_[j]);
}

// A hint speaks of all steps of a kind: so all of them must be safe.
uint16_t NamedSteps::safe_hints(const Operation& op, const std::vector<bool>& carried) const {
  const PlanView plan{op.plan};
  uint16_t found = 0, unsafe = 0;
  for (uint32_t b = 0; b < op.plan->block_count; ++b) {
    const BlockPlan& block = plan.blocks()[b];
    for (uint32_t n = 0; n < block.instruction_count; ++n) {
      const Instruction& i = plan.instructions()[block.instruction_first + n];
      for (const uint16_t hint : {kByReference, kOutputByReference})
        if (is_by_reference(hint, i) &&
            all_carried(plan, block.send_first + i.send_first, i.send_count, carried))
          (written_by_others_[block.instruction_first + n] ? unsafe : found) |= hint;
    }
  }
  return found & ~unsafe;
}

void NamedSteps::add(const Operation& op, const BlockPlan& block, uint32_t n, bool sends) {
  const PlanView plan{op.plan};
  const Instruction& i = plan.instructions()[block.instruction_first + n];
  const uint64_t messages = message_count(op, i);
  const bool read = sends && !writes_destination(i.opcode);
  const BufferKind buffer = read ? i.source_buffer : i.destination_buffer;
  for (uint32_t k = 0; messages != 0 && k < (sends ? i.send_count : i.receive_count); ++k) {
    const uint32_t c = (sends ? i.send_first : i.receive_first) + k;
    const auto spacing = spacing_of(op, block, n, c, sends);
    if (!spacing) continue;
    const Connection& connection = plan.connections()[(sends ? block.send_first : block.receive_first) + c];
    steps_.push_back({sends, connection.peer, connection.channel, buffer, spacing->before, spacing->stride,
                      messages, address_of(op, buffer, read ? i.source_chunk : i.destination_chunk),
                      length_of(op, i, 0)});
  }
}

}  // namespace starling
