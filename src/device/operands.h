// What the operands of an instruction are: addresses for combine(). Each is a chain of loads from the block's
// fast memory, so each is found by a thread of its own; and those of short programs of packets all at once,
// before the first instruction runs.
#pragma once
#include "base/assert.h"
#include "device/combine.h"
#include "device/connector.h"
#include "device/execution.h"
#include "device/machine.h"
#include "device/opened.h"
#include "device/packets.h"
#include "device/places.h"
#include "wire/lane.h"
#include "wire/operation.h"

namespace starling::device {

// What an instruction does with one chunk of its slice in one tile.
struct Piece {
  uint32_t k;
  TileRange range;
};

// Of an instruction that sends, what its messages name.
STARLING_HOST_DEVICE inline BufferKind offered_buffer(const Instruction& i) {
  return writes_destination(i.opcode) ? i.destination_buffer : i.source_buffer;
}

// Does it copy what they name to where peers can open it? Of what lands: from there.
template <class M>
STARLING_HOST_DEVICE bool is_bounced(const Operation& op, const Instruction& i) {
  if constexpr (M::kOpensPeers) return bounce_of(op, offered_buffer(i)) != 0;
  return false;
}

// Messages that instructions before this one send or receive on a connection of the block.
struct Earlier {
  const Instruction* instructions;
  uint32_t count;

  STARLING_HOST_DEVICE uint32_t received(uint32_t connection) const {
    uint32_t messages = 0;
    for (uint32_t n = 0; n < count; ++n)
      messages += receives(instructions[n].opcode) &&
                  connection - instructions[n].receive_first < instructions[n].receive_count;
    return messages;
  }
  STARLING_HOST_DEVICE uint32_t sent(uint32_t connection) const {
    uint32_t messages = 0;
    for (uint32_t n = 0; n < count; ++n)
      messages += sends(instructions[n].opcode) &&
                  connection - instructions[n].send_first < instructions[n].send_count;
    return messages;
  }
};

template <class M>
class Binding {
 public:
  STARLING_HOST_DEVICE Binding(M& machine, const Execution& x, const BlockEnds& ends, const Instruction& i,
                               const Piece& piece, Combine& operands, const Earlier& earlier)
      : m_(machine),
        x_(x),
        op_(*x.operation),
        ends_(ends),
        i_(i),
        piece_(piece),
        c_(operands),
        earlier_(earlier) {
    protocol_ = op_.plan->protocol;
    // The order of a reduction: the destination that is reduced into, then what is received, and before
    // number `local_position` of that the local source.
    into_ = reduces_into(i.opcode);
    local_ = reads_source(i.opcode);
    local_at_ = into_ + i.local_position;
    source_count_ = into_ + local_ + (receives(i.opcode) ? i.receive_count : 0);
    written_ = writes_destination(i.opcode);
    // A message of protocol pull is what the interpreter writes when it signals, unless it is put.
    sent_ = !sends(i.opcode)                            ? 0
            : protocol_ != Protocol::kPull || is_put(i) ? i.send_count
                                                        : is_bounced<M>(op_, i);
  }

  // By `threads` threads, of which this is number `thread`. The first comes last: it has enough to do where
  // there are others.
  STARLING_HOST_DEVICE void bind(uint32_t thread, uint32_t threads) {
    if (thread == 0) bind_whole();
    const uint32_t count = source_count_ + written_ + sent_;
    for (uint32_t k = thread == 0 ? threads - 1 : thread - 1; k < count; k += threads)
      k < source_count_ ? bind_source(k) : bind_destination(k - source_count_);
  }

  // Of packets: are the connections of this thread there, with credit?
  STARLING_HOST_DEVICE bool ready(uint32_t thread, uint32_t threads) const {
    bool all = true;
    for (uint32_t k = thread; receives(i_.opcode) && k < i_.receive_count; k += threads)
      all &= ends_.receive(i_.receive_first + k).connected != 0;
    for (uint32_t k = thread; k < sent_; k += threads)
      all &= message_to(i_.send_first + k) < ends_.send(i_.send_first + k).packets_granted;
    return all;
  }

 private:
  STARLING_HOST_DEVICE void bind_whole() {
    c_.bytes = piece_.range.bytes;
    c_.message_bytes = piece_.k * op_.tile_bytes + piece_.range.bytes;  // the last chunk's that has any
    c_.data_type = op_.data_type;
    c_.reduce_op = op_.reduce_op;
    c_.source_count = source_count_;
    c_.destination_count = written_ + sent_;
    const bool scales =
        local_ != 0 && i_.source_buffer == BufferKind::kInput && op_.reduce_op == ReduceOp::kPremulSum;
    c_.scaled_source = scales ? local_at_ : kNoSource;
    c_.factor = op_.scalar;
    c_.divisor = (i_.flags & kFinal) && op_.reduce_op == ReduceOp::kAvg ? op_.rank_count : 1;
    c_.past_caches = written_ != 0 && (op_.hints & kPastCaches);
    c_.owner = 0;
    c_.offered = nullptr;
    if (protocol_ == Protocol::kPull && sends(i_.opcode) && !is_put(i_)) c_.offered = offered();
    bind_packets();
  }

  STARLING_HOST_DEVICE void bind_packets() {
    c_.packet_sources = c_.packet_destinations = c_.refreshed = c_.packet_bytes = 0;
    if (protocol_ != Protocol::kPackets) return;
    c_.packet_bytes = x_.lane->packet_bytes;
    c_.packet_sources = ((1u << source_count_) - 1) & ~into_ & ~(local_ << local_at_);
    c_.packet_destinations = ((1u << sent_) - 1) << written_;
    uint32_t refreshed = 0;
    for (uint32_t k = 0; k < sent_; ++k)
      refreshed |= uint32_t(refreshes(message_to(i_.send_first + k))) << (written_ + k);
    c_.refreshed = refreshed;
  }

  STARLING_HOST_DEVICE void bind_source(uint32_t at) {
    if (at < into_) {
      c_.sources[at] = destination();
    } else if (local_ != 0 && at == local_at_) {
      c_.sources[at] = source();
    } else {
      bind_receive(at, i_.receive_first + at - into_ - uint32_t(local_ != 0 && at > local_at_));
    }
  }

  // In a message chunk k lies at k tiles; packets and pulls have one.
  STARLING_HOST_DEVICE void bind_receive(uint32_t at, uint32_t connection) {
    const ReceiveEnd& end = ends_.receive(connection);
    if (protocol_ == Protocol::kPackets) {
      const uint64_t message = end.packets_received + earlier_.received(connection);
      c_.sources[at] = reinterpret_cast<const std::byte*>(packet_slot(*x_.lane, end.packets, message));
      c_.source_flags[at] = packet_flag(message);
    } else if (lands(i_)) {
      c_.sources[at] = offered();
    } else if (protocol_ == Protocol::kPull) {
      bind_pulled(at, end);
    } else {
      c_.sources[at] = next_receive_slot(*x_.lane, end, x_.pool_base) + piece_.k * op_.tile_bytes;
      if constexpr (M::kReadsOwned)
        if ((op_.hints & kInPlace) && is_in_place(end)) c_.sources[at] = destination();
    }
  }

  STARLING_HOST_DEVICE void bind_pulled(uint32_t at, const ReceiveEnd& end) {
    Pack message;
    hear(m_, end, message);
    c_.sources[at] = reinterpret_cast<const std::byte*>(message.low);
    if constexpr (M::kOpensPeers)
      if (end.opened != nullptr) c_.sources[at] = opened_address(m_, *end.opened, message);
    if constexpr (M::kReadsOwned) {
      if (message.high == m_.owner()) return;
      // Choices of plans see to that (comm/lowering.cc): between processes none reduces what it pulls.
      STARLING_ASSERT(at == 0, "a slice of another process is reduced");
      c_.owner = message.high;
    }
  }

  STARLING_HOST_DEVICE void bind_destination(uint32_t at) {
    if (at < written_) {
      c_.destinations[at] = destination();
      return;
    }
    const uint32_t connection = i_.send_first + at - written_;
    if (protocol_ == Protocol::kPull) {
      c_.destinations[at] = offered();
      if (is_put(i_))
        find_next_place(m_, *x_.lane, ends_.send(connection), piece_.range.bytes, c_.destinations[at]);
      return;
    }
    const SendEnd& end = ends_.send(connection);
    if (protocol_ == Protocol::kSlots) {
      c_.destinations[at] = next_send_slot(*x_.lane, end) + piece_.k * op_.tile_bytes;
      return;
    }
    const uint64_t message = message_to(connection);
    c_.destinations[at] = reinterpret_cast<std::byte*>(packet_slot(*x_.lane, end.packets, message));
    c_.destination_flags[at] = packet_flag(message);
  }

  STARLING_HOST_DEVICE uint64_t message_to(uint32_t connection) const {
    return ends_.send(connection).packets_sent + earlier_.sent(connection);
  }

  STARLING_HOST_DEVICE std::byte* source() const { return local(i_.source_buffer, i_.source_chunk); }
  STARLING_HOST_DEVICE std::byte* destination() const {
    return local(i_.destination_buffer, i_.destination_chunk);
  }
  // Where peers read it, or write: in its buffer, or where it bounces.
  STARLING_HOST_DEVICE std::byte* offered() const {
    std::byte* slice = written_ ? destination() : source();
    if constexpr (M::kOpensPeers) slice += bounce_of(op_, offered_buffer(i_));
    return slice;
  }
  STARLING_HOST_DEVICE std::byte* local(BufferKind kind, uint32_t chunk) const {
    const BufferBinding& buffer = op_.buffers[uint32_t(kind)];
    return buffer.base + chunk_begin(op_, buffer, kind, chunk + piece_.k) +
           tile_begin(op_, kind, piece_.range.offset_bytes);
  }

  M& m_;
  const Execution& x_;
  const Operation& op_;
  const BlockEnds& ends_;
  const Instruction& i_;
  const Piece& piece_;
  Combine& c_;
  Earlier earlier_;
  Protocol protocol_;
  uint32_t into_;  // 1: the destination is the first source
  uint32_t local_;  // 1: there is a local source, number `local_at_`
  uint32_t local_at_;
  uint32_t source_count_;
  uint32_t written_;  // 1: the first destination is the plan's
  uint32_t sent_;  // and so many follow: slots, or where a pulled slice bounces
};

// By all threads, once all that the instruction waits for is there. A barrier must follow.
template <class M>
STARLING_HOST_DEVICE void bind_operands(M& m, const Execution& x, const BlockEnds& ends, const Instruction& i,
                                        const Piece& piece) {
  Binding<M>(m, x, ends, i, piece, *x.operands, {nullptr, 0}).bind(m.thread_index(), m.thread_count());
}

}  // namespace starling::device
