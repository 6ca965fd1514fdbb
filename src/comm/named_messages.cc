// Large messages between hosts without slots (docs/design/0014): who sends names its caller's buffer, and who
// receives says in which one the message is wanted. Each decides that alone, operation by operation; the
// connectors' counters, and what ranks agree on, are those of every message.
//
//   sender    block: address into the slot, posted ─▶ the links' proxy sends from there ─▶ landed, or granted
//             again: taken (wire/connector.h) ─▶ the operation is complete
//   receiver  host: a landing, before the blocks begin ─▶ the proxy reads the socket into it, or into the
//             slot if the message was faster ─▶ block: copies what is in slots, grants
//
// An operation that ends otherwise, with an error, takes back what it has said: from then on the link reads
// and writes its buffers no more.
#include "comm/lane.h"
#include "link/carry/proxy.h"

namespace starling {
namespace {

// Of a plan whose blocks each send one chunk of the input, or each receive one into the output. 0: of others.
uint16_t hints_for(const PlanView& plan, const PlanHeader& header) {
  uint16_t hints = 0;
  for (uint32_t b = 0; b < header.block_count; ++b) {
    const BlockPlan& block = plan.blocks()[b];
    if (block.instruction_count > 1) return 0;
    for (uint32_t n = 0; n < block.instruction_count; ++n) {
      const Instruction& i = plan.instructions()[block.instruction_first + n];
      const bool sent = i.opcode == Opcode::send && i.source_buffer == BufferKind::kInput;
      const bool received = i.opcode == Opcode::recv && i.destination_buffer == BufferKind::kOutput;
      if ((!sent && !received) || i.chunks != 1 || i.dependency_count != 0) return 0;
      hints |= sent ? kByReference : kInPlace;
    }
  }
  return hints == (kByReference | kInPlace) ? 0 : hints;
}

}  // namespace

void HostLane::name_buffers(Flight& flight) {
  if (!names_buffers()) return;
  link::carry::Way& way = *member(1 - rank()).peer.way;
  Operation& op = flight.lowered.operation;
  const PlanView plan{op.plan};
  // A proxy that polls has another thread read sources.
  const uint16_t hints = op.group_bytes >= kNamedBytes && !way.polls() ? hints_for(plan, *op.plan) : 0;
  op.hints |= hints;
  expected_.resize(shared_->channel_count);
  lent_.resize(shared_->channel_count);
  for (uint32_t b = 0; b < op.plan->block_count; ++b) {
    const BlockPlan& block = plan.blocks()[b];
    for (uint32_t n = 0; n < block.instruction_count; ++n) {
      const Instruction& i = plan.instructions()[block.instruction_first + n];
      const uint64_t messages = message_count(op, i);
      for (uint32_t k = 0; sends(i.opcode) && k < i.send_count; ++k) {
        const uint32_t channel = plan.connections()[block.send_first + i.send_first + k].channel;
        const BufferBinding& input = op.buffers[uint32_t(i.source_buffer)];
        if ((hints & kByReference) && messages > 0)
          way.lend(numbers_[1 - rank()], channel,
                   {lent_[channel], messages,
                    input.base + chunk_begin(op, input, i.source_buffer, i.source_chunk), op.tile_bytes,
                    chunk_length(op, op.buffers[uint32_t(i.size_buffer)], i.size_buffer, i.size_chunk)});
        lent_[channel] += messages;
      }
      if (!receives(i.opcode)) continue;
      const BufferBinding& output = op.buffers[uint32_t(i.destination_buffer)];
      for (uint32_t k = 0; k < i.receive_count; ++k) {
        const uint32_t channel = plan.connections()[block.receive_first + i.receive_first + k].channel;
        if ((hints & kInPlace) && messages > 0)
          way.expect(numbers_[1 - rank()], channel,
                     {expected_[channel], messages,
                      output.base + chunk_begin(op, output, i.destination_buffer, i.destination_chunk),
                      op.tile_bytes,
                      chunk_length(op, op.buffers[uint32_t(i.size_buffer)], i.size_buffer, i.size_chunk)});
        expected_[channel] += messages;
      }
    }
  }
}

void HostLane::take_back_buffers() {
  for (uint32_t peer = 0; carried_ && peer < numbers_.size(); ++peer)
    if (member(peer).peer.way != nullptr) member(peer).peer.way->take_back(numbers_[peer]);
}

bool HostLane::is_used_by_devices() const {
  for (uint32_t peer = 0; carried_ && peer < numbers_.size(); ++peer)
    if (member(peer).peer.way != nullptr && member(peer).peer.way->is_used_by_devices(numbers_[peer]))
      return true;
  return false;
}

}  // namespace starling
