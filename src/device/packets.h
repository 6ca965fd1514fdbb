// Small messages whose every word says by itself that it is there: flags in the data, as in NCCL's LL
// protocol.
//
//   word   8 bytes, stored and loaded whole:   data 4 bytes (low) | flag 4 bytes (high)
//   slot   2 x Lane::packet_bytes: two planes of 16-byte packs. 16 bytes of a message, a unit, are pack u of
//          the first plane and pack u of the second, so that neighbouring threads store neighbouring packs
//   flag   low half of the message's number on its connection, plus 1
//
//      sender's block                              receiver's block
//      packets_sent = k                            packets_received = k
//      credit? k < packets_read + kPacketSlots
//      words with flag k + 1 ────────────────────▶ every thread polls its own units: are all flags k + 1?
//      packets_sent = k + 1                        barrier and vote, then the values are used
//      packets_read  ◀──────────────────────────── packets_read := k + 1 (store_after_loads), after a barrier
//                                                  behind the last load: the vote, where values are kept
//
// Order. A word is whole, so who sees its flag has its data: no release, no acquire, no counter. What the
// message says of other memory is nothing: it carries values only. The slot is written again only after
// packets_read said that all threads have loaded this message. A flag that is not k + 1 is an older message's
// of this slot: nothing but packets is stored here, and a slot that is not written to its end for long keeps
// old flags. Before the flags come round again, 2^32 messages later, kRefresh makes each slot be filled to
// its end once. Fresh memory is zero, and flag 0 comes after a refresh.
#pragma once
#include "device/combine.h"
#include "device/connector.h"
#include "device/machine.h"
#include "wire/connector.h"
#include "wire/lane.h"

namespace starling::device {

// Operands that a thread keeps in registers; of more in memory of its own.
inline constexpr uint32_t kFewSources = 4;

inline constexpr uint64_t kRefresh = uint64_t(1) << 30;  // messages

STARLING_HOST_DEVICE constexpr uint32_t packet_flag(uint64_t message) { return uint32_t(message + 1); }

// Is this message to fill its slot to the end?
STARLING_HOST_DEVICE constexpr bool refreshes(uint64_t message) { return message % kRefresh < kPacketSlots; }

// Is one of these to do so?
STARLING_HOST_DEVICE constexpr bool refreshes_amid(uint64_t first, uint64_t count) {
  return refreshes(first) || (first + count - 1) / kRefresh != first / kRefresh;
}

template <class Word>
STARLING_HOST_DEVICE Word* packet_slot(const Lane& lane, Word* slots, uint64_t message) {
  return slots + message % kPacketSlots * (lane.packet_bytes / sizeof(uint32_t));
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

// ---- moving; on all threads, each its own units
// ------------------------------------------------------------------

STARLING_HOST_DEVICE inline uint64_t packet_units(const Combine& c) { return (c.bytes + 15) / 16; }
STARLING_HOST_DEVICE inline uint64_t unit_bytes(const Combine& c, uint64_t unit) {
  const uint64_t left = c.bytes - 16 * unit;
  return left < 16 ? left : 16;
}

// The words of a unit, as they were seen.
struct PacketUnit {
  uint64_t a, b, d, e;

  STARLING_HOST_DEVICE bool has(uint32_t flag) const {
    return uint32_t(a >> 32) == flag && uint32_t(b >> 32) == flag && uint32_t(d >> 32) == flag &&
           uint32_t(e >> 32) == flag;
  }
  STARLING_HOST_DEVICE Pack data() const {
    return {uint64_t(uint32_t(a)) | b << 32, uint64_t(uint32_t(d)) | e << 32};
  }
};

template <class M>
STARLING_HOST_DEVICE PacketUnit read_packet_unit(M& m, const uint64_t* slot, uint32_t packet_bytes,
                                                 uint64_t unit) {
  const uint64_t* words = slot + 2 * unit;
  PacketUnit seen;
  m.read_words(words, seen.a, seen.b);
  m.read_words(words + packet_bytes / sizeof(uint64_t), seen.d, seen.e);
  return seen;
}

// Of operand s.
template <class M>
STARLING_HOST_DEVICE PacketUnit read_packet_unit(M& m, const Combine& c, uint32_t s, uint64_t unit) {
  return read_packet_unit(m, reinterpret_cast<const uint64_t*>(c.sources[s]), c.packet_bytes, unit);
}

STARLING_HOST_DEVICE inline bool is_packet(const Combine& c, uint32_t s) { return c.packet_sources >> s & 1; }

template <class M>
STARLING_HOST_DEVICE void write_packet_unit(M& m, uint64_t* slot, uint32_t packet_bytes, uint32_t flag,
                                            uint64_t unit, Pack data) {
  uint64_t* words = slot + 2 * unit;
  const uint64_t high = uint64_t(flag) << 32;
  m.write_words(words, high | uint32_t(data.low), high | data.low >> 32);
  m.write_words(words + packet_bytes / sizeof(uint64_t), high | uint32_t(data.high), high | data.high >> 32);
}

// To operand d.
template <class M>
STARLING_HOST_DEVICE void write_packet_unit(M& m, const Combine& c, uint32_t d, uint64_t unit, Pack data) {
  write_packet_unit(m, reinterpret_cast<uint64_t*>(c.destinations[d]), c.packet_bytes, c.destination_flags[d],
                    unit, data);
}

// Has the unit come from every peer?
template <class M>
STARLING_HOST_DEVICE bool packet_unit_there(M& m, const Combine& c, uint64_t unit) {
  for (uint32_t s = 0; s < c.source_count; ++s)
    if (is_packet(c, s) && !read_packet_unit(m, c, s, unit).has(c.source_flags[s])) return false;
  return true;
}

// The same, and keeps what it saw, in the operands' order. Several peers are looked at together: one trip to
// memory, not one each.
template <uint32_t kMost, class M>
STARLING_HOST_DEVICE bool take_packet_unit(M& m, const Combine& c, uint64_t unit, Pack (&in)[kMost]) {
  constexpr uint32_t kTogether = kFewSources;
  const uint32_t packets = c.packet_sources;
  bool there = true;
  for (uint32_t first = 0; first < (kMost == kTogether ? 1 : c.source_count); first += kTogether) {
    PacketUnit seen[kTogether] = {};
    STARLING_UNROLL
    for (uint32_t k = 0; k < kTogether; ++k)
      if (packets >> (first + k) & 1) seen[k] = read_packet_unit(m, c, first + k, unit);
    STARLING_UNROLL
    for (uint32_t k = 0; k < kTogether; ++k) {
      if (!(packets >> (first + k) & 1)) continue;
      there = there && seen[k].has(c.source_flags[first + k]);
      in[first + k] = seen[k].data();
    }
  }
  return there;
}

template <class M>
STARLING_HOST_DEVICE Pack load_unit(M& m, const Combine& c, uint32_t s, uint64_t unit, uint64_t bytes) {
  if (!is_packet(c, s)) return m.load_few(c.sources[s] + 16 * unit, bytes);
  return read_packet_unit(m, c, s, unit).data();
}

// What of the unit is no packet.
template <uint32_t kMost, class M>
STARLING_HOST_DEVICE void load_plain_units(M& m, const Combine& c, uint64_t unit, Pack (&in)[kMost]) {
  const uint32_t plain = ((1u << c.source_count) - 1) & ~c.packet_sources;
  if (plain == 0) return;
  const uint64_t bytes = unit_bytes(c, unit);
  STARLING_UNROLL
  for (uint32_t s = 0; s < kMost; ++s)
    if (plain >> s & 1) in[s] = m.load_few(c.sources[s] + 16 * unit, bytes);
}

template <class M>
STARLING_HOST_DEVICE void store_unit(M& m, const Combine& c, uint64_t unit, uint64_t bytes, Pack data) {
  const uint32_t count = c.destination_count;
  const uint32_t packets = c.packet_destinations;
  for (uint32_t d = 0; d < count; ++d) {
    if (packets >> d & 1)
      write_packet_unit(m, c, d, unit, data);
    else
      m.store_few(c.destinations[d] + 16 * unit, data, bytes);
  }
}

// Flags for the units behind the message's end.
template <class M>
STARLING_HOST_DEVICE void refresh(M& m, const Combine& c) {
  if (c.refreshed == 0) return;
  const uint64_t units = packet_units(c);
  for (uint64_t u = m.thread_index(); u < c.packet_bytes / 16; u += m.thread_count())
    for (uint32_t d = 0; u >= units && d < c.destination_count; ++d)
      if (c.refreshed >> d & 1) write_packet_unit(m, c, d, u, Pack{0, 0});
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
template <class T, class Op, uint32_t kMost, class Reduction>
STARLING_HOST_DEVICE Pack reduce_kept_unit_as(const Reduction& c, const Pack (&in)[kMost]) {
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

// Of a reduction what is to be known of operands in registers, none of them scaled; as Combine's.
struct KeptReduction {
  uint32_t source_count;
  uint32_t divisor;
  DataType data_type;
  ReduceOp reduce_op;
  static constexpr uint32_t scaled_source = kNoSource;
};

// What training sums, in registers all the way. False: it is something else. `Reduction`: a Combine, or a
// KeptReduction.
template <uint32_t kMost, class Reduction>
STARLING_HOST_DEVICE bool sum_kept_unit(const Reduction& c, const Pack (&in)[kMost], Pack& out) {
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
    // A copy: what is passed by address cannot stay in registers. In a structure: of arrays of one type that
    // come into one function the inliner makes one, and all of them would lie in local memory.
    struct Kept {
      Pack packs[kMost];
    } kept;
    for (uint32_t s = 0; s < kMost; ++s) kept.packs[s] = in[s];
    reduce_unit(m, c, kept.packs, out);
  }
  return out;
}

template <uint32_t kMost, class M>
STARLING_HOST_DEVICE void combine_unit(M& m, const Combine& c, uint64_t unit, const Pack (&in)[kMost]) {
  store_unit(m, c, unit, unit_bytes(c, unit), is_plain(c) ? in[0] : reduce_kept_unit(m, c, in));
}

// destinations = reduce(sources), as combine(), in units: a function for each type and reduction.
template <class T, class Op, class M>
STARLING_HOST_DEVICE void reduce_packets_as(M& m, const Combine& c) {
  const uint64_t units = packet_units(c);
  for (uint64_t u = m.thread_index(); u < units; u += m.thread_count()) {
    const uint64_t bytes = unit_bytes(c, u);
    UnitReduction<T, Op> reduction;
    for (uint32_t s = 0; s < c.source_count; ++s) {
      const Pack pack = load_unit(m, c, s, u, bytes);
      s == c.scaled_source ? reduction.add_scaled(c, s, pack) : reduction.add(s, pack);
    }
    if (c.divisor != 1) reduction.divide(c.divisor);
    store_unit(m, c, u, bytes, reduction.result());
  }
}

// The same with one choice of type and reduction a unit: slower, and the table exists once.
template <class M>
STARLING_HOST_DEVICE void reduce_packets(M& m, const Combine& c) {
  const uint64_t units = packet_units(c);
  for (uint64_t u = m.thread_index(); u < units; u += m.thread_count()) {
    Pack in[kMaxFan + 1] = {};
    for (uint32_t s = 0; s < c.source_count; ++s) in[s] = load_unit(m, c, s, u, unit_bytes(c, u));
    combine_unit<kMaxFan + 1>(m, c, u, in);
  }
}

template <class M>
STARLING_HOST_DEVICE void copy_packets(M& m, const Combine& c) {
  const uint64_t units = packet_units(c);
  for (uint64_t u = m.thread_index(); u < units; u += m.thread_count()) {
    const uint64_t bytes = unit_bytes(c, u);
    store_unit(m, c, u, bytes, load_unit(m, c, 0, u, bytes));
  }
}

// The counterpart of combine() for instructions with packets; ends without a barrier. All packets are there.
template <class M>
STARLING_HOST_DEVICE void combine_packets(M& m, const Combine& c) {
  if (is_plain(c))
    copy_packets(m, c);
  else
    reduce_packets(m, c);
  refresh(m, c);
}

}  // namespace starling::device
