// Small and middle messages whose every line says by itself that it is there: flags in the data, as in NCCL's
// LL128 protocol.
//
//   line    M::kLineUnits units of 16 bytes of the message, and behind them a pack with the flag. On CUDA
//           128 bytes, seven units, which eight neighbouring threads store and load by one instruction; of wide
//           threads each has a line of one unit
//   unit    16 bytes of a message, a thread's share of a line; who has the flag's place has none
//   slot    Lane::packet_slot_bytes: the lines of Lane::packet_bytes
//   flag    the message's number on its connection, plus 1
//
//      sender's block                              receiver's block
//      packets_sent = k                            packets_received = k
//      credit? k < packets_read + kPacketSlots
//      lines with flag k + 1 ────────────────────▶ every thread polls its own lines: are all flags k + 1?
//      packets_sent = k + 1                        barrier and vote, then the values are used
//      packets_read  ◀──────────────────────────── packets_read := k + 1 (store_after_loads), after a barrier
//                                                  behind the last load: the vote, where values are kept
//
// Order. Who sees a line's flag has its data (Machine::write_line, read_line): no counter, and on CUDA no
// fence. What the message says of other memory is nothing: it carries values only. The slot is written again
// only after packets_read said that all threads have loaded this message. A flag that is not k + 1 is an older
// message's of this slot: nothing but packets is stored here, and 64 bits do not come round.
#pragma once
#include "device/combine.h"
#include "device/connector.h"
#include "device/machine.h"
#include "wire/connector.h"
#include "wire/lane.h"

namespace starling::device {

// Operands that a thread keeps in registers; of more in memory of its own.
inline constexpr uint32_t kFewSources = 4;

STARLING_HOST_DEVICE constexpr uint64_t packet_flag(uint64_t message) { return message + 1; }

template <class Word>
STARLING_HOST_DEVICE Word* packet_slot(const Lane& lane, Word* slots, uint64_t message) {
  return slots + message % kPacketSlots * (lane.packet_slot_bytes / sizeof(uint64_t));
}

// ---- the ends; only the leader of the block that owns the end calls these
// -------------------------------------

// Learns of what credit there is, unless it is known to be enough for so many messages.
template <class M>
STARLING_HOST_DEVICE void look_for_credit(M& m, const Lane& lane, SendEnd& end, uint64_t messages) {
  if (end.packets_sent + messages <= end.packets_granted) return;
  // Who was granted anything is connected.
  if (end.packets_granted == 0 && !is_connected(m, lane, end)) return;
  // Acquire: pairs with store_after_loads() in packets_were_read(); the receiver has done with what we
  // overwrite.
  end.packets_granted = m.load_acquire(&end.credit->packets_read) + kPacketSlots;
}

// May a packet message be written now?
template <class M>
STARLING_HOST_DEVICE bool can_send_packets(M& m, const Lane& lane, SendEnd& end) {
  look_for_credit(m, lane, end, 1);
  return end.packets_sent < end.packets_granted;
}

// All threads have loaded the message (a barrier came before).
template <class M>
STARLING_HOST_DEVICE void packets_were_read(M& m, ReceiveEnd& end) {
  ++end.packets_received;
  m.store_after_loads(&end.credit->packets_read, end.packets_received);
  m.notify(end.doorbell);
}

// All threads have stored the message (a barrier came before).
template <class M>
STARLING_HOST_DEVICE void packets_were_sent(M& m, SendEnd& end) {
  ++end.packets_sent;
  m.notify(end.doorbell);
}

// ---- moving; on all threads, each its own lines
// ------------------------------------------------------------------

template <class M>
inline constexpr uint32_t kLineWords = 2 * (M::kLineUnits + 1);

STARLING_HOST_DEVICE inline uint64_t packet_units(const Combine& c) { return (c.bytes + 15) / 16; }
template <class M>
STARLING_HOST_DEVICE uint64_t packet_lines(const Combine& c) {
  return (c.bytes + 16 * M::kLineUnits - 1) / (16 * M::kLineUnits);
}

// The first line that this thread has a part in, and how far it is to its next.
template <class M>
STARLING_HOST_DEVICE uint64_t first_line(const M& m) {
  return m.thread_index() / M::kLineThreads;
}
template <class M>
STARLING_HOST_DEVICE uint64_t line_stride(const M& m) {
  return m.thread_count() / M::kLineThreads;
}

// This thread's part of a line. Threads that go on together (Machine::any_together) have a line each, or none.
struct LineUnit {
  uint64_t line;
  uint64_t unit;
  uint64_t bytes;  // 0: it has none, but the flag's place, or the message ends before
};
template <class M>
STARLING_HOST_DEVICE LineUnit unit_in(const M& m, uint64_t line, uint64_t message_bytes) {
  const uint32_t place = m.thread_index() % M::kLineThreads;
  const uint64_t unit = line * M::kLineUnits + place, begin = 16 * unit;
  if (place >= M::kLineUnits || begin >= message_bytes) return {line, unit, 0};
  return {line, unit, message_bytes - begin < 16 ? message_bytes - begin : 16};
}

template <class M>
STARLING_HOST_DEVICE const uint64_t* line_of(const std::byte* slot, uint64_t line) {
  return reinterpret_cast<const uint64_t*>(slot) + line * kLineWords<M>;
}
template <class M>
STARLING_HOST_DEVICE uint64_t* line_of(std::byte* slot, uint64_t line) {
  return reinterpret_cast<uint64_t*>(slot) + line * kLineWords<M>;
}

STARLING_HOST_DEVICE inline bool is_packet(const Combine& c, uint32_t s) { return c.packet_sources >> s & 1; }

// Has the line come from every peer? The same on all threads that go on together.
template <class M>
STARLING_HOST_DEVICE bool packet_line_there(M& m, const Combine& c, uint64_t line, bool ours) {
  bool there = true;
  for (uint32_t s = 0; s < c.source_count; ++s) {
    if (!is_packet(c, s)) continue;
    const LinePart seen = m.read_line(line_of<M>(c.sources[s], line), ours);
    there = there && (!ours || seen.flag == c.source_flags[s]);
  }
  return m.as_flag_says(there);
}

// The same, and keeps what it saw, in the operands' order. Several peers are looked at together: one trip to
// memory, not one each.
template <uint32_t kMost, class M>
STARLING_HOST_DEVICE bool take_packet_line(M& m, const Combine& c, uint64_t line, bool ours,
                                           Pack (&in)[kMost]) {
  constexpr uint32_t kTogether = kFewSources;
  const uint32_t packets = c.packet_sources;
  bool there = true;
  for (uint32_t first = 0; first < (kMost == kTogether ? 1 : c.source_count); first += kTogether) {
    LinePart seen[kTogether] = {};
    STARLING_UNROLL
    for (uint32_t k = 0; k < kTogether; ++k)
      if (packets >> (first + k) & 1) seen[k] = m.read_line(line_of<M>(c.sources[first + k], line), ours);
    STARLING_UNROLL
    for (uint32_t k = 0; k < kTogether; ++k) {
      if (!(packets >> (first + k) & 1)) continue;
      there = there && (!ours || seen[k].flag == c.source_flags[first + k]);
      in[first + k] = seen[k].data;
    }
  }
  return m.as_flag_says(there);
}

// Of a line that is there.
template <class M>
STARLING_HOST_DEVICE Pack load_unit(M& m, const Combine& c, uint32_t s, const LineUnit& u, bool ours) {
  if (is_packet(c, s)) return m.read_line(line_of<M>(c.sources[s], u.line), ours).data;
  return u.bytes != 0 ? m.load_few(c.sources[s] + 16 * u.unit, u.bytes) : Pack{0, 0};
}

// What of the unit is no packet.
template <uint32_t kMost, class M>
STARLING_HOST_DEVICE void load_plain_units(M& m, const Combine& c, const LineUnit& u, Pack (&in)[kMost]) {
  const uint32_t plain = ((1u << c.source_count) - 1) & ~c.packet_sources;
  if (plain == 0 || u.bytes == 0) return;
  STARLING_UNROLL
  for (uint32_t s = 0; s < kMost; ++s)
    if (plain >> s & 1) in[s] = m.load_few(c.sources[s] + 16 * u.unit, u.bytes);
}

template <class M>
STARLING_HOST_DEVICE void store_unit(M& m, const Combine& c, const LineUnit& u, bool ours, Pack data) {
  const uint32_t count = c.destination_count;
  const uint32_t packets = c.packet_destinations;
  for (uint32_t d = 0; d < count; ++d) {
    if (packets >> d & 1)
      m.write_line(line_of<M>(c.destinations[d], u.line), ours, c.destination_flags[d], data);
    else if (u.bytes != 0)
      m.store_few(c.destinations[d] + 16 * u.unit, data, u.bytes);
  }
}

// The reduction of one unit, source by source.
template <class T, class Op>
struct UnitReduction {
  using E = Element<T>;
  static constexpr uint32_t kElements = 16 / sizeof(T);
  typename E::Accumulator values[kElements] = {};

  STARLING_HOST_DEVICE void add(uint32_t s, Pack pack) {
    PackElements<T> in;
    in.pack = pack;
    STARLING_UNROLL
    for (uint32_t e = 0; e < kElements; ++e) {
      const auto value = E::load(in.elements[e]);
      values[e] = s == 0 ? value : Op::apply(values[e], value);
    }
  }
  // Of the source that is scaled.
  STARLING_HOST_DEVICE void add_scaled(const Combine& c, uint32_t s, Pack pack) {
    PackElements<T> in;
    in.pack = pack;
    STARLING_UNROLL
    for (uint32_t e = 0; e < kElements; ++e) {
      const auto value = E::scale(E::load(in.elements[e]), c.factor);
      values[e] = s == 0 ? value : Op::apply(values[e], value);
    }
  }
  STARLING_HOST_DEVICE void divide(uint32_t divisor) {
    STARLING_UNROLL
    for (uint32_t e = 0; e < kElements; ++e) values[e] = E::divide(values[e], divisor);
  }
  STARLING_HOST_DEVICE Pack result() const {
    PackElements<T> out;
    STARLING_UNROLL
    for (uint32_t e = 0; e < kElements; ++e) out.elements[e] = E::store(values[e]);
    return out.pack;
  }
};

template <class T, class Op>
STARLING_HOST_DEVICE Pack reduce_unit_as(const Combine& c, const Pack* in) {
  UnitReduction<T, Op> reduction;
  for (uint32_t s = 0; s < c.source_count; ++s)
    s == c.scaled_source ? reduction.add_scaled(c, s, in[s]) : reduction.add(s, in[s]);
  if (c.divisor != 1) reduction.divide(c.divisor);
  return reduction.result();
}

// The same for operands in registers, none of them scaled: each has its index at compile time.
template <class T, class Op, uint32_t kMost>
STARLING_HOST_DEVICE Pack reduce_kept_unit_as(const Combine& c, const Pack (&in)[kMost]) {
  UnitReduction<T, Op> reduction;
  const uint32_t count = c.source_count;
  STARLING_UNROLL
  for (uint32_t s = 0; s < kMost; ++s)
    if (s < count) reduction.add(s, in[s]);
  if (c.divisor != 1) reduction.divide(c.divisor);
  return reduction.result();
}

// A machine may have its own, found by argument-dependent lookup: the table of types and reductions is large.
template <class M>
STARLING_HOST_DEVICE void reduce_unit(M&, const Combine& c, const Pack* in, Pack& out) {
  with_type_and_op(c.data_type, c.reduce_op, [&](auto element, auto op) {
    out = reduce_unit_as<decltype(element), decltype(op)>(c, in);
  });
}

// What training sums, in registers all the way. False: it is something else.
template <uint32_t kMost>
STARLING_HOST_DEVICE bool sum_kept_unit(const Combine& c, const Pack (&in)[kMost], Pack& out) {
  if (c.scaled_source != kNoSource) return false;
  if (c.reduce_op != ReduceOp::kSum && c.reduce_op != ReduceOp::kAvg) return false;
  switch (c.data_type) {
    case DataType::kFloat32: out = reduce_kept_unit_as<float, Sum>(c, in); return true;
    case DataType::kBfloat16: out = reduce_kept_unit_as<Bfloat16, Sum>(c, in); return true;
    case DataType::kFloat16: out = reduce_kept_unit_as<Float16, Sum>(c, in); return true;
    default: return false;
  }
}

// Of a unit whose operands are in `in`.
template <uint32_t kMost, class M>
STARLING_HOST_DEVICE Pack reduce_kept_unit(M& m, const Combine& c, const Pack (&in)[kMost]) {
  Pack out = in[0];
  if constexpr (kMost > kFewSources) {
    reduce_unit(m, c, in, out);
  } else if (!sum_kept_unit(c, in, out)) {
    Pack kept[kMost];  // a copy: what is passed by address cannot stay in registers
    for (uint32_t s = 0; s < kMost; ++s) kept[s] = in[s];
    reduce_unit(m, c, kept, out);
  }
  return out;
}

template <uint32_t kMost, class M>
STARLING_HOST_DEVICE void combine_unit(M& m, const Combine& c, const LineUnit& u, bool ours,
                                       const Pack (&in)[kMost]) {
  store_unit(m, c, u, ours, is_plain(c) ? in[0] : reduce_kept_unit(m, c, in));
}

// destinations = reduce(sources), as combine(), in units: a function for each type and reduction.
template <class T, class Op, class M>
STARLING_HOST_DEVICE void reduce_packets_as(M& m, const Combine& c) {
  const uint64_t lines = packet_lines<M>(c);
  for (uint64_t line = first_line(m); m.any_together(line < lines); line += line_stride(m)) {
    const bool ours = line < lines;
    const LineUnit u = unit_in(m, line, c.bytes);
    UnitReduction<T, Op> reduction;
    for (uint32_t s = 0; s < c.source_count; ++s) {
      const Pack pack = load_unit(m, c, s, u, ours);
      s == c.scaled_source ? reduction.add_scaled(c, s, pack) : reduction.add(s, pack);
    }
    if (c.divisor != 1) reduction.divide(c.divisor);
    store_unit(m, c, u, ours, reduction.result());
  }
}

// The same with one choice of type and reduction a unit: slower, and the table exists once.
template <class M>
STARLING_HOST_DEVICE void reduce_packets(M& m, const Combine& c) {
  const uint64_t lines = packet_lines<M>(c);
  for (uint64_t line = first_line(m); m.any_together(line < lines); line += line_stride(m)) {
    const bool ours = line < lines;
    const LineUnit u = unit_in(m, line, c.bytes);
    Pack in[kMaxFan + 1] = {};
    for (uint32_t s = 0; s < c.source_count; ++s) in[s] = load_unit(m, c, s, u, ours);
    combine_unit<kMaxFan + 1>(m, c, u, ours, in);
  }
}

template <class M>
STARLING_HOST_DEVICE void copy_packets(M& m, const Combine& c) {
  const uint64_t lines = packet_lines<M>(c);
  for (uint64_t line = first_line(m); m.any_together(line < lines); line += line_stride(m)) {
    const bool ours = line < lines;
    const LineUnit u = unit_in(m, line, c.bytes);
    store_unit(m, c, u, ours, load_unit(m, c, 0, u, ours));
  }
}

// The counterpart of combine() for instructions with packets; ends without a barrier. All packets are there.
template <class M>
STARLING_HOST_DEVICE void combine_packets(M& m, const Combine& c) {
  if (is_plain(c))
    copy_packets(m, c);
  else
    reduce_packets(m, c);
}

}  // namespace starling::device
