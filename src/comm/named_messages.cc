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
#include <algorithm>

#include "comm/lane.h"
#include "link/carry/proxy.h"

namespace starling {
namespace {

// Of a collective: smaller messages, of a lane that began with a small operation, are copied sooner than
// named.
constexpr uint64_t kSmallestNamedMessage = 64 << 10;

}  // namespace

// Of a collective, between two ranks. Nothing else of its lane is under way: then its ends have counted all
// messages before it (sent_or_received()), and no earlier operation works on its buffers.
bool HostLane::may_name(const Operation& op) const {
  if (!carried_ || options_.copies || !place_.traits().direct) return false;
  const bool large = names_buffers() ? op.group_bytes >= kNamedBytes
                                     : op.chunk_bytes * op.plan->block_count >= kNamedBytes &&
                                           op.tile_bytes >= kSmallestNamedMessage && on_device_ == 0;
  return large && !polls();
}

// A proxy that does has another thread read sources.
bool HostLane::polls() const {
  return std::any_of(options_.members.begin(), options_.members.end(), [](const Member& member) {
    return member.peer.way != nullptr && member.peer.way->polls();
  });
}

void HostLane::name_buffers(Flight& flight) {
  Operation& op = flight.lowered.operation;
  if (may_name(op)) {
    named_.find(op, carried_peers_);
    op.hints |= named_.hints();
    tell_steps(op);
  }
  if (names_buffers()) count_messages(op);
}

// What is registered of a buffer is one piece, from the first byte that is named to the last.
void HostLane::tell_steps(const Operation& op) {
  struct Piece {
    std::byte* begin = nullptr;
    std::byte* end = nullptr;
    link::RegistrationPtr memory;
    bool tried = false;
  } pieces[4];
  for (const NamedStep& step : named_.steps()) {
    Piece& piece = pieces[uint32_t(step.buffer)];
    piece.begin = piece.begin == nullptr ? step.at : std::min(piece.begin, step.at);
    piece.end = std::max(piece.end, step.at + step.bytes);
  }
  for (const NamedStep& step : named_.steps()) {
    link::carry::Way& way = *member(step.peer).peer.way;
    Piece& piece = pieces[uint32_t(step.buffer)];
    if (!piece.tried && way.uses_rdma(!step.sends)) {
      piece.memory = way.enroll(piece.begin, uint64_t(piece.end - piece.begin));
      piece.tried = true;
    }
    const link::carry::Messages messages{sent_or_received(step) + step.before, step.messages,
                                         step.messages == 1 ? 1 : step.stride};
    if (!step.sends)
      way.expect(numbers_[step.peer], step.channel, {messages, step.at, op.tile_bytes, step.bytes},
                 piece.memory);
    else if (piece.memory != nullptr)
      way.lend(numbers_[step.peer], step.channel, {messages, piece.memory});
  }
}

// Before the operation, on the step's connection. Of messages several operations may be under way.
uint64_t HostLane::sent_or_received(const NamedStep& step) const {
  if (names_buffers()) return step.sends ? lent_[step.channel] : expected_[step.channel];
  const uint64_t end = uint64_t(step.peer) * shared_->channel_count + step.channel;
  return step.sends ? image_.sends[end].sent : image_.receives[end].received;
}

void HostLane::count_messages(const Operation& op) {
  const PlanView plan{op.plan};
  for (uint32_t b = 0; b < op.plan->block_count; ++b) {
    const BlockPlan& block = plan.blocks()[b];
    for (uint32_t n = 0; n < block.instruction_count; ++n) {
      const Instruction& i = plan.instructions()[block.instruction_first + n];
      const uint64_t messages = message_count(op, i);
      for (uint32_t k = 0; sends(i.opcode) && k < i.send_count; ++k)
        lent_[plan.connections()[block.send_first + i.send_first + k].channel] += messages;
      for (uint32_t k = 0; receives(i.opcode) && k < i.receive_count; ++k)
        expected_[plan.connections()[block.receive_first + i.receive_first + k].channel] += messages;
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
