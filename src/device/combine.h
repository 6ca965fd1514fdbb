// The one function that moves data: destinations = reduce(sources), element by element, in one pass.
// Every instruction of every plan ends here (wire/opcodes.h).
//
// A destination may be the very memory of a source (in place); it must not overlap one at another offset.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/portable.h"
#include "device/element.h"
#include "device/machine.h"
#include "wire/pack.h"
#include "wire/plan.h"

namespace starling::device {

struct Combine {
  const std::byte* sources[kMaxFan + 1];
  std::byte* destinations[kMaxFan + 1];
  uint64_t bytes;
  uint64_t message_bytes;  // of the message that this chunk belongs to, up to the chunk's end
  uint32_t source_count;
  uint32_t destination_count;
  uint32_t scaled_source;   // index of the source to multiply by `factor`; kNoSource: none
  uint32_t divisor;         // the result is divided by it; 1: not
  double factor;
  DataType data_type;
  ReduceOp reduce_op;
  uint32_t past_caches;  // 1: destinations[0] is not read again soon
  const std::byte* offered;  // what a message of protocol pull names; null: another protocol
  uint64_t owner;  // of sources[0], which is no address here (M::owner()); 0: it is one
  // Packets (device/packets.h): bit k of a mask says that operand k is a packet slot, not plain memory.
  uint32_t packet_sources;
  uint32_t packet_destinations;
  uint32_t refreshed;     // of the destinations: to be filled to their end
  uint32_t packet_bytes;  // data of a packet slot; 0: no operand is one
  uint32_t source_flags[kMaxFan + 1];
  uint32_t destination_flags[kMaxFan + 1];

  STARLING_HOST_DEVICE void clear() {
    for (auto& source : sources) source = nullptr;
    for (auto& destination : destinations) destination = nullptr;
    bytes = message_bytes = 0;
    source_count = destination_count = scaled_source = divisor = 0;
    factor = 0;
    data_type = DataType{};
    reduce_op = ReduceOp{};
    past_caches = 0;
    offered = nullptr;
    owner = 0;
    packet_sources = packet_destinations = refreshed = packet_bytes = 0;
    for (auto& flag : source_flags) flag = 0;
    for (auto& flag : destination_flags) flag = 0;
  }
};
inline constexpr uint32_t kNoSource = ~0u;

// One source, and nothing to compute.
STARLING_HOST_DEVICE inline bool is_plain(const Combine& c) {
  return c.source_count == 1 && c.scaled_source == kNoSource && c.divisor == 1;
}

// The same, and it is where it shall be. Of addresses of one process (Combine::owner).
STARLING_HOST_DEVICE inline bool is_in_place(const Combine& c) {
  return is_plain(c) && c.destination_count == 1 && c.sources[0] == c.destinations[0];
}

// ---- machines with vector threads (CUDA): all threads stride over 16-byte packs ------------------------

template <class T, class Op>
STARLING_HOST_DEVICE T combine_element(const Combine& c, uint64_t index) {
  using E = Element<T>;
  auto load = [&](uint32_t s) {
    auto value = E::load(reinterpret_cast<const T*>(c.sources[s])[index]);
    return s == c.scaled_source ? E::scale(value, c.factor) : value;
  };
  auto value = load(0);
  for (uint32_t s = 1; s < c.source_count; ++s) value = Op::apply(value, load(s));
  if (c.divisor != 1) value = E::divide(value, c.divisor);
  return E::store(value);
}

STARLING_HOST_DEVICE inline const Pack* packs_of(const std::byte* from) {
  STARLING_ASSUME_GLOBAL(from);
  return reinterpret_cast<const Pack*>(from);
}
STARLING_HOST_DEVICE inline Pack* packs_of(std::byte* to) {
  STARLING_ASSUME_GLOBAL(to);
  return reinterpret_cast<Pack*>(to);
}

// To each destination: its address is read once, since what is stored might be the addresses for all that a
// compiler knows.
template <uint32_t kPacks>
STARLING_HOST_DEVICE void store_packs(const Combine& c, const Pack (&packs)[kPacks], uint64_t index,
                                      uint64_t stride) {
  for (uint32_t d = 0, count = c.destination_count; d < count; ++d) {
    Pack* to = packs_of(c.destinations[d]) + index;
    STARLING_UNROLL
    for (uint32_t p = 0; p < kPacks; ++p) to[p * stride] = packs[p];
  }
}

// `kPacks` packs at a time, `stride` apart: their loads are under way together, and those of the next source
// while this one is added. What is rare, scaling and dividing, is asked once a pack of packs, not once an
// element.
template <class T, class Op, uint32_t kPacks>
STARLING_HOST_DEVICE void combine_packs(const Combine& c, uint64_t index, uint64_t stride) {
  using E = Element<T>;
  constexpr uint32_t kElements = 16 / sizeof(T);
  PackElements<T> next[kPacks];
  const auto load_next = [&](uint32_t s) {
    const Pack* source = packs_of(c.sources[s]) + index;
    STARLING_UNROLL
    for (uint32_t p = 0; p < kPacks; ++p) next[p].pack = source[p * stride];
  };
  typename E::Accumulator values[kPacks][kElements];
  const auto each = [&](auto&& change) {
    STARLING_UNROLL
    for (uint32_t p = 0; p < kPacks; ++p) {
      STARLING_UNROLL
      for (uint32_t e = 0; e < kElements; ++e) change(p, e);
    }
  };
  load_next(0);
  each([&](uint32_t p, uint32_t e) { values[p][e] = E::load(next[p].elements[e]); });
  if (c.source_count > 1) load_next(1);
  if (c.scaled_source == 0)
    each([&](uint32_t p, uint32_t e) { values[p][e] = E::scale(values[p][e], c.factor); });
  for (uint32_t s = 1; s < c.source_count; ++s) {
    typename E::Accumulator terms[kPacks][kElements];
    each([&](uint32_t p, uint32_t e) { terms[p][e] = E::load(next[p].elements[e]); });
    if (s + 1 < c.source_count) load_next(s + 1);
    if (s == c.scaled_source)
      each([&](uint32_t p, uint32_t e) { terms[p][e] = E::scale(terms[p][e], c.factor); });
    each([&](uint32_t p, uint32_t e) { values[p][e] = Op::apply(values[p][e], terms[p][e]); });
  }
  if (c.divisor != 1)
    each([&](uint32_t p, uint32_t e) { values[p][e] = E::divide(values[p][e], c.divisor); });
  Pack out[kPacks];
  STARLING_UNROLL
  for (uint32_t p = 0; p < kPacks; ++p) {
    PackElements<T> result;
    STARLING_UNROLL
    for (uint32_t e = 0; e < kElements; ++e) result.elements[e] = E::store(values[p][e]);
    out[p] = result.pack;
  }
  store_packs(c, out, index, stride);
}

#if defined(__CUDA_ARCH__)
template <class Half2>
STARLING_DEVICE Pack add_halves(const Pack& a, const Pack& b) {
  union Halves {
    Pack pack;
    Half2 two[4];
    STARLING_DEVICE explicit Halves(const Pack& from) : pack(from) {}
  };
  Halves sums(a);
  const Halves terms(b);
  STARLING_UNROLL
  for (uint32_t e = 0; e < 4; ++e) sums.two[e] = __hadd2_rn(sums.two[e], terms.two[e]);
  return sums.pack;
}
#endif

// Two packs, element by element. CUDA adds two 16-bit floats at once, to the same bits: a sum of 24 bits, at
// least twice 11 (or 8) and two, may be rounded to those without a difference, and where the exponent is at
// its least it is exact.
template <class T, class Op>
STARLING_HOST_DEVICE Pack apply_packs(PackElements<T> a, const PackElements<T>& b) {
  using E = Element<T>;
#if defined(__CUDA_ARCH__)
  constexpr bool kSum = std::is_same_v<Op, Sum>;
  if constexpr (kSum && std::is_same_v<T, Float16>) {
    return add_halves<__half2>(a.pack, b.pack);
  } else if constexpr (kSum && std::is_same_v<T, Bfloat16>) {
    return add_halves<__nv_bfloat162>(a.pack, b.pack);
  } else
#endif
  {
    STARLING_UNROLL
    for (uint32_t e = 0; e < 16 / sizeof(T); ++e)
      a.elements[e] = E::store(Op::apply(E::load(a.elements[e]), E::load(b.elements[e])));
    return a.pack;
  }
}

// Two sources, nothing to scale or divide: as many loads under way as registers hold, since nothing is kept
// but the packs.
template <class T, class Op, uint32_t kPacks>
STARLING_HOST_DEVICE void combine_pair_packs(const Combine& c, uint64_t index, uint64_t stride) {
  const Pack* first = packs_of(c.sources[0]) + index;
  const Pack* second = packs_of(c.sources[1]) + index;
  PackElements<T> a[kPacks], b[kPacks];
  STARLING_UNROLL
  for (uint32_t p = 0; p < kPacks; ++p) a[p].pack = first[p * stride];
  STARLING_UNROLL
  for (uint32_t p = 0; p < kPacks; ++p) b[p].pack = second[p * stride];
  Pack out[kPacks];
  STARLING_UNROLL
  for (uint32_t p = 0; p < kPacks; ++p) out[p] = apply_packs<T, Op>(a[p], b[p]);
  store_packs(c, out, index, stride);
}

// How many whole packs can be moved as such.
STARLING_HOST_DEVICE inline uint64_t aligned_packs(const Combine& c) {
  uint64_t misaligned = 0;
  for (uint32_t s = 0; s < c.source_count; ++s) misaligned |= uint64_t(c.sources[s]);
  for (uint32_t d = 0; d < c.destination_count; ++d) misaligned |= uint64_t(c.destinations[d]);
  return (misaligned & 15) ? 0 : c.bytes / 16;
}

template <class T, class Op, class M>
STARLING_HOST_DEVICE void combine_strided(M& m, const Combine& c) {
  constexpr uint32_t kPacks = sizeof(T) == 1 ? 2 : 4;
  const uint64_t packs = aligned_packs(c);
  const uint64_t threads = m.thread_count();
  uint64_t i = m.thread_index();
  if (c.source_count == 2 && c.scaled_source == kNoSource && c.divisor == 1)
    for (; i + (2 * kPacks - 1) * threads < packs; i += 2 * kPacks * threads)
      combine_pair_packs<T, Op, 2 * kPacks>(c, i, threads);
  for (; i + (kPacks - 1) * threads < packs; i += kPacks * threads)
    combine_packs<T, Op, kPacks>(c, i, threads);
  for (; i < packs; i += threads) combine_packs<T, Op, 1>(c, i, threads);
  const uint64_t first = packs * (16 / sizeof(T));
  for (i = first + m.thread_index(); i < c.bytes / sizeof(T); i += threads) {
    const T value = combine_element<T, Op>(c, i);
    for (uint32_t d = 0; d < c.destination_count; ++d) reinterpret_cast<T*>(c.destinations[d])[i] = value;
  }
}

inline constexpr uint32_t kCopiedPacks = 8;  // a thread's loads that are under way together

// To one place: nothing but loads and stores in the loop.
template <class M>
STARLING_HOST_DEVICE void copy_strided(M& m, std::byte* to, const std::byte* from, uint64_t bytes) {
  const uint64_t packs = ((uint64_t(to) | uint64_t(from)) & 15) ? 0 : bytes / 16;
  const uint64_t threads = m.thread_count();
  const Pack* source = packs_of(from);
  Pack* target = packs_of(to);
  uint64_t i = m.thread_index();
  for (; i + (kCopiedPacks - 1) * threads < packs; i += kCopiedPacks * threads) {
    Pack pack[kCopiedPacks];
    STARLING_UNROLL
    for (uint32_t p = 0; p < kCopiedPacks; ++p) pack[p] = source[i + p * threads];
    STARLING_UNROLL
    for (uint32_t p = 0; p < kCopiedPacks; ++p) target[i + p * threads] = pack[p];
  }
  for (; i < packs; i += threads) target[i] = source[i];
  for (i = packs * 16 + m.thread_index(); i < bytes; i += threads) to[i] = from[i];
}

// One source, nothing to compute.
template <class M>
STARLING_HOST_DEVICE void copy_strided(M& m, const Combine& c) {
  if (c.destination_count == 1) return copy_strided(m, c.destinations[0], c.sources[0], c.bytes);
  const uint64_t packs = aligned_packs(c);
  const uint64_t threads = m.thread_count();
  const Pack* source = packs_of(c.sources[0]);
  uint64_t i = m.thread_index();
  for (; i + (kCopiedPacks - 1) * threads < packs; i += kCopiedPacks * threads) {
    Pack pack[kCopiedPacks];
    STARLING_UNROLL
    for (uint32_t p = 0; p < kCopiedPacks; ++p) pack[p] = source[i + p * threads];
    store_packs(c, pack, i, threads);
  }
  for (; i < packs; i += threads) {
    const Pack pack[1] = {source[i]};
    store_packs(c, pack, i, threads);
  }
  for (i = packs * 16 + m.thread_index(); i < c.bytes; i += threads)
    for (uint32_t d = 0; d < c.destination_count; ++d) c.destinations[d][i] = c.sources[0][i];
}

// ---- machines with wide threads (CPU, simulator): each thread takes one contiguous part ------------------

inline constexpr uint64_t kSpanBytes = 4096;  // reduced at a time: it and its operands stay in the L1 cache

// Two operands and nothing else to do, the common case: one pass. out may be the memory of a source.
template <class T, class Op>
void combine_pair(const T* a, const T* b, uint64_t count, T* out) {
  using E = Element<T>;
  for (uint64_t i = 0; i < count; ++i) out[i] = E::store(Op::apply(E::load(a[i]), E::load(b[i])));
}

// out may be the memory of a source.
template <class T, class Op>
void combine_span(const Combine& c, uint64_t first, uint64_t count, T* out) {
  using E = Element<T>;
  using A = typename E::Accumulator;
  const auto source = [&](uint32_t s) { return reinterpret_cast<const T*>(c.sources[s]) + first; };
  if (c.source_count == 2 && c.scaled_source == kNoSource && c.divisor == 1)
    return combine_pair<T, Op>(source(0), source(1), count, out);
  A values[kSpanBytes / sizeof(T)];
  for (uint32_t s = 0; s < c.source_count; ++s) {
    const T* in = source(s);
    if (s == c.scaled_source) {
      for (uint64_t i = 0; i < count; ++i) {
        const A value = E::scale(E::load(in[i]), c.factor);
        values[i] = s == 0 ? value : Op::apply(values[i], value);
      }
    } else if (s == 0) {
      for (uint64_t i = 0; i < count; ++i) values[i] = E::load(in[i]);
    } else {
      for (uint64_t i = 0; i < count; ++i) values[i] = Op::apply(values[i], E::load(in[i]));
    }
  }
  if (c.divisor != 1)
    for (uint64_t i = 0; i < count; ++i) values[i] = E::divide(values[i], c.divisor);
  for (uint64_t i = 0; i < count; ++i) out[i] = E::store(values[i]);
}

template <class T, class Op, class M>
void combine_contiguous(M& m, const Combine& c) {
  const uint64_t count = c.bytes / sizeof(T);
  constexpr uint64_t kStep = kSpanBytes / sizeof(T);
  // Parts end on multiples of the step, so that no two threads write one cache line.
  const uint64_t steps = (count + kStep - 1) / kStep;
  const uint64_t begin = steps * m.thread_index() / m.thread_count() * kStep;
  const uint64_t end_step = steps * (m.thread_index() + 1) / m.thread_count() * kStep;
  const uint64_t end = end_step < count ? end_step : count;
  T scratch[kStep];
  for (uint64_t first = begin; first < end; first += kStep) {
    const uint64_t span = end - first < kStep ? end - first : kStep;
    // Plain memory takes the result at once; the other destinations copy it while it is in the cache.
    T* result = M::kPlainWrites ? reinterpret_cast<T*>(c.destinations[0]) + first : scratch;
    combine_span<T, Op>(c, first, span, result);
    for (uint32_t d = M::kPlainWrites ? 1 : 0; d < c.destination_count; ++d)
      m.write(c.destinations[d] + first * sizeof(T), reinterpret_cast<const std::byte*>(result),
              span * sizeof(T));
  }
}

// This thread's part of a slice.
template <class M>
void copy_contiguous(M& m, std::byte* to, const std::byte* from, uint64_t bytes, bool past_caches = false) {
  const uint64_t steps = (bytes + kSpanBytes - 1) / kSpanBytes;
  const uint64_t begin = steps * m.thread_index() / m.thread_count() * kSpanBytes;
  const uint64_t end_step = steps * (m.thread_index() + 1) / m.thread_count() * kSpanBytes;
  const uint64_t end = end_step < bytes ? end_step : bytes;
  if (begin >= end) return;
  if (past_caches)
    m.write_past_caches(to + begin, from + begin, end - begin);
  else
    m.write(to + begin, from + begin, end - begin);
}

template <class M>
void copy_contiguous(M& m, const Combine& c) {
  for (uint32_t d = 0; d < c.destination_count; ++d)
    if (c.destinations[d] != c.sources[0])
      copy_contiguous(m, c.destinations[d], c.sources[0], c.bytes, d == 0 && c.past_caches != 0);
}

// A slice, from one place to another; likewise.
template <class M>
STARLING_HOST_DEVICE void copy_slice(M& m, std::byte* to, const std::byte* from, uint64_t bytes) {
  if (to == from) return;
  if constexpr (M::kVectorThreads)
    copy_strided(m, to, from, bytes);
  else
    copy_contiguous(m, to, from, bytes);
}

// Runs on all threads of the block; ends without a barrier. For plain memory: packets have combine_packets().
template <class M>
STARLING_HOST_DEVICE void combine(M& m, const Combine& c) {
  if constexpr (M::kVectorThreads) {
    if (is_plain(c)) return copy_strided(m, c);
    with_type_and_op(c.data_type, c.reduce_op,
                     [&](auto element, auto op) { combine_strided<decltype(element), decltype(op)>(m, c); });
  } else {
    if (is_plain(c)) return copy_contiguous(m, c);
    with_type_and_op(c.data_type, c.reduce_op, [&](auto element, auto op) {
      combine_contiguous<decltype(element), decltype(op)>(m, c);
    });
  }
}

}  // namespace starling::device
