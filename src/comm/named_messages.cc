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

// Of a collective, between two ranks. What it receives may come while operations before it are under way.
bool HostLane::may_name(const Operation& op) const {
  if (!counts_messages()) return false;
  const bool large = names_buffers() ? op.group_bytes >= kNamedBytes
                                     : op.chunk_bytes * op.plan->block_count >= kNamedBytes &&
                                           op.tile_bytes >= kSmallestNamedMessage;
  return large && !polls() && (names_buffers() || !touches_what_others_do(op));
}

// Operations of the lane that may be named need the numbers of their messages; others are not counted.
bool HostLane::counts_messages() const {
  return carried_ && !options_.copies && place_.traits().direct && !has_slots_on_device() &&
         (names_buffers() || shared_->slot_bytes >= kSmallestNamedMessage);
}

// Hosts name bytes that they may have to copy.
bool HostLane::has_slots_on_device() const {
  return std::any_of(carriers_.begin(), carriers_.end(), [](const auto& carrier) {
    return carrier != nullptr && carrier->on_device() != nullptr;
  });
}

// A proxy that does has another thread read sources.
bool HostLane::polls() const {
  return std::any_of(options_.members.begin(), options_.members.end(), [](const Member& member) {
    return member.peer.way != nullptr && member.peer.way->polls();
  });
}

void HostLane::name_buffers(Flight& flight) {
  if (!counts_messages()) return;
  Operation& op = flight.lowered.operation;
  if (on_device_ == 0) read_counts();
  if (may_name(op)) {
    named_.find(op, carried_peers_);
    op.hints |= named_.hints();
    tell_steps(op);
  }
  count_messages(op);
}

// Of those before this one in the lane, which its peers may have behind them.
bool HostLane::touches_what_others_do(const Operation& op) const {
  for (uint32_t k = 0; k < on_device_; ++k)
    if (conflict(op, flights_[k].lowered.operation)) return true;
  return false;
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
      piece.memory = way.enroll({piece.begin, uint64_t(piece.end - piece.begin)});
      piece.tried = true;
    }
    const uint64_t end = uint64_t(step.peer) * shared_->channel_count + step.channel;
    const link::carry::Messages messages{(step.sends ? sent_ : received_)[end] + step.before, step.messages,
                                         step.messages == 1 ? 1 : step.stride};
    if (!step.sends)
      way.expect(numbers_[step.peer], step.channel, {messages, step.at, op.tile_bytes, step.bytes},
                 piece.memory);
    else if (piece.memory != nullptr)
      way.lend(numbers_[step.peer], step.channel, {messages, piece.memory});
  }
}

// No operation is under way: the ends are the host's to read.
void HostLane::read_counts() {
  sent_.resize(ends());
  received_.resize(ends());
  for (uint64_t end = 0; end < ends(); ++end) {
    sent_[end] = image_.sends[end].sent;
    received_[end] = image_.receives[end].received;
  }
}

void HostLane::count_messages(const Operation& op) {
  const PlanView plan{op.plan};
  for (uint32_t b = 0; b < op.plan->block_count; ++b) {
    const BlockPlan& block = plan.blocks()[b];
    const auto count = [&](std::vector<uint64_t>& counts, uint32_t first, uint32_t connections,
                           uint64_t messages) {
      for (uint32_t k = 0; k < connections; ++k) {
        const Connection& connection = plan.connections()[first + k];
        counts[uint64_t(connection.peer) * shared_->channel_count + connection.channel] += messages;
      }
    };
    for (uint32_t n = 0; n < block.instruction_count; ++n) {
      const Instruction& i = plan.instructions()[block.instruction_first + n];
      const uint64_t messages = message_count(op, i);
      if (sends(i.opcode)) count(sent_, block.send_first + i.send_first, i.send_count, messages);
      if (receives(i.opcode))
        count(received_, block.receive_first + i.receive_first, i.receive_count, messages);
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
