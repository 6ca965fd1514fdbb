// Short slices. The loops of device/combine.h are for long ones: what is left behind their last whole turn
// goes pack by pack, each a trip to memory of its own, and of another GPU's memory a trip is more than a
// microsecond. Here a thread has all its packs of all slices under way together.
#pragma once
#include "base/portable.h"
#include "device/combine.h"
#include "device/packets.h"
#include "wire/pack.h"

namespace starling::device {

struct Slice {
  std::byte* to;
  const std::byte* from;
  uint64_t bytes;
};

// Copies slice(0) to slice(count - 1), of which none overlaps another. On all threads of the block; ends
// without a barrier.
template <class M, class SliceAt>
STARLING_HOST_DEVICE void copy_slices(M& m, uint32_t count, SliceAt&& slice) {
  if constexpr (!M::kVectorThreads) {
    for (uint32_t k = 0; k < count; ++k) {
      const Slice s = slice(k);
      copy_slice(m, s.to, s.from, s.bytes);
    }
  } else {
    const uint64_t threads = m.thread_count(), turn = kCopiedPacks * threads;
    const auto rest = [&](uint32_t k) {
      const Slice s = slice(k);
      const uint64_t packs = s.bytes / 16, whole = packs / turn * turn;
      const bool in_packs = ((uint64_t(s.to) | uint64_t(s.from) | s.bytes) & 15) == 0 && s.to != s.from;
      return Slice{s.to + whole * 16, s.from + whole * 16, in_packs ? packs - whole : 0};
    };
    STARLING_ROLLED
    for (uint32_t k = 0; k < count; ++k) {
      const Slice s = slice(k);
      const uint64_t left = rest(k).bytes * 16;
      if (s.bytes != left) copy_slice(m, s.to, s.from, s.bytes - left);
    }
    uint32_t k = 0;
    uint64_t at = m.thread_index();  // of the rest of slice k
    Slice s = rest(0);  // its bytes in packs
    const auto advance = [&] {
      while (at >= s.bytes) {
        if (++k >= count) return false;
        s = rest(k);
        at = m.thread_index();
      }
      return true;
    };
    for (bool more = true; more;) {
      Pack packs[kCopiedPacks];
      Pack* to[kCopiedPacks];
      STARLING_UNROLL
      for (uint32_t p = 0; p < kCopiedPacks; ++p) {
        more = more && advance();
        to[p] = nullptr;
        if (!more) continue;
        to[p] = packs_of(s.to) + at;
        packs[p] = packs_of(s.from)[at];
        at += threads;
      }
      STARLING_UNROLL
      for (uint32_t p = 0; p < kCopiedPacks; ++p)
        if (to[p] != nullptr) *to[p] = packs[p];
    }
  }
}

// What training sums, of few sources: sum_slice() can.
STARLING_HOST_DEVICE inline bool sums_in_registers(const Combine& c) {
  if (c.source_count < 2 || c.source_count > kFewSources || c.scaled_source != kNoSource) return false;
  if (c.reduce_op != ReduceOp::kSum && c.reduce_op != ReduceOp::kAvg) return false;
  return c.data_type == DataType::kFloat32 || c.data_type == DataType::kBfloat16 ||
         c.data_type == DataType::kFloat16;
}

// As store_packs(), of packs before `end`.
template <uint32_t kPacks>
STARLING_HOST_DEVICE void store_some(const Combine& c, const Pack (&packs)[kPacks], uint64_t index,
                                     uint64_t stride, uint64_t end) {
  for (uint32_t d = 0, count = c.destination_count; d < count; ++d) {
    Pack* const to = packs_of(c.destinations[d]);
    STARLING_UNROLL
    for (uint32_t p = 0; p < kPacks; ++p)
      if (index + p * stride < end) to[index + p * stride] = packs[p];
  }
}

// Of kMost sources at most, kPacks packs of each at a time.
template <class T, uint32_t kMost, uint32_t kPacks, class M>
STARLING_HOST_DEVICE void sum_slice_as(M& m, const Combine& c, uint64_t packs) {
  const uint64_t threads = m.thread_count();
  STARLING_ROLLED
  for (uint64_t i = m.thread_index(); i < packs; i += kPacks * threads) {
    Pack in[kPacks][kMost] = {};
    STARLING_UNROLL
    for (uint32_t s = 0; s < kMost; ++s) {
      if (s >= c.source_count) continue;
      const Pack* const from = packs_of(c.sources[s]);
      STARLING_UNROLL
      for (uint32_t p = 0; p < kPacks; ++p)
        if (i + p * threads < packs) in[p][s] = from[i + p * threads];
    }
    Pack out[kPacks];
    STARLING_UNROLL
    for (uint32_t p = 0; p < kPacks; ++p) out[p] = reduce_kept_unit_as<T, Sum>(c, in[p]);
    store_some(c, out, i, threads, packs);
  }
}

// After sums_in_registers().
template <uint32_t kMost, uint32_t kPacks, class M>
STARLING_HOST_DEVICE void sum_slice(M& m, const Combine& c, uint64_t packs) {
  switch (c.data_type) {
    case DataType::kFloat32: return sum_slice_as<float, kMost, kPacks>(m, c, packs);
    case DataType::kBfloat16: return sum_slice_as<Bfloat16, kMost, kPacks>(m, c, packs);
    default: return sum_slice_as<Float16, kMost, kPacks>(m, c, packs);
  }
}

// To several destinations.
template <class M>
STARLING_HOST_DEVICE void spread_slice(M& m, const Combine& c, uint64_t packs) {
  const uint64_t threads = m.thread_count();
  const Pack* const from = packs_of(c.sources[0]);
  STARLING_ROLLED
  for (uint64_t i = m.thread_index(); i < packs; i += kCopiedPacks * threads) {
    Pack in[kCopiedPacks];
    STARLING_UNROLL
    for (uint32_t p = 0; p < kCopiedPacks; ++p)
      if (i + p * threads < packs) in[p] = from[i + p * threads];
    store_some(c, in, i, threads, packs);
  }
}

// As combine().
template <class M>
STARLING_HOST_DEVICE void combine_slice(M& m, const Combine& c) {
  if constexpr (M::kVectorThreads) {
    const uint64_t packs = aligned_packs(c);
    if (is_plain(c) && packs * 16 == c.bytes) return spread_slice(m, c, packs);
    if (sums_in_registers(c) && packs * 16 == c.bytes)
      return c.source_count == 2 ? sum_slice<2, 8>(m, c, packs) : sum_slice<kFewSources, 4>(m, c, packs);
  }
  combine(m, c);
}

}  // namespace starling::device
