// The ways of bench/gpu/link_probe.cu: what a collective does on the links, written out, on the blocks of a
// kernel on each GPU. A rank's block talks to the same block of its peers.
#pragma once
#include <array>
#include <cstdint>

namespace link_probe {

constexpr uint32_t kMostRanks = 4, kThreads = 512, kMostBlocks = 264, kFlagWords = 16;
constexpr uint32_t kServing = 64;  // threads beside them (link_served.h)
constexpr uint64_t kMostLooks = 1u << 22;  // then the peer is not there

enum class Way {
  kSendPut,
  kSendPutEight,
  kSendPull,
  kGatherPutTogether,
  kGatherPutInTurn,
  kGatherPullTogether,
  kGatherPullInTurn,
  kGatherPullEight,
  kGatherRing,
  kScatterPull,
  kScatterPut,
  kReduceAllTogether,
  kReduceAllInTurn,
  kReduceAllByRank,
  kReduceAllPullRing,
  kReduceAllPut,
  kReduceAllRingInStep,
  kReduceAllRingStaggered,
  kReduceAllRing,
  kBroadcastChain,
  kBroadcastSplit,
  kReduceChain,
  kReduceSplitPut,
  kReduceSplitPull,
  kReduceAllRingServed,
  kGatherRingServed,
  kBroadcastChainServed,
  kReduceChainServed,
  kCount
};
constexpr const char* kNames[] = {"send: put",
                                  "send: put, eight packs a thread",
                                  "send: pull",
                                  "all_gather: put together",
                                  "all_gather: put in turn",
                                  "all_gather: pull together",
                                  "all_gather: pull in turn",
                                  "all_gather: pull in turn, eight packs",
                                  "all_gather: ring of puts",
                                  "reduce_scatter: pull together",
                                  "reduce_scatter: put in turn, then sum",
                                  "all_reduce: pull, put together",
                                  "all_reduce: pull, put in turn",
                                  "all_reduce: pull, put, all from rank 0 on",
                                  "all_reduce: pull, ring of puts",
                                  "all_reduce: put, sum, put in turn",
                                  "all_reduce: ring of puts, in step",
                                  "all_reduce: ring of puts, staggered",
                                  "all_reduce: ring of puts",
                                  "broadcast: chain of puts",
                                  "broadcast: split, put in turn",
                                  "reduce: chain of puts",
                                  "reduce: split, put in turn",
                                  "reduce: split, pull together, put",
                                  "all_reduce: ring of puts, served",
                                  "all_gather: ring of puts, served",
                                  "broadcast: chain of puts, served",
                                  "reduce: chain of puts, served"};

struct Memory {
  float4* in[kMostRanks];
  float4* out[kMostRanks];
  float4* scratch[kMostRanks];  // parts of as many as there are ranks
  uint32_t* flags[kMostRanks];  // a block's: the others' words for it
  uint32_t* stuck;  // ours
  uint32_t rank, count;
};

// This block's part of a call, and the words between it and the same block of its peers.
class Block {
 public:
  __device__ Block(const Memory& m, uint32_t call) : m_(m), base_(call << 16) {}

  // Behind all that the block has done: value k of this call is there for `peer`.
  __device__ void tell_all(uint32_t k) {
    __syncthreads();
    if (threadIdx.x == m_.rank || threadIdx.x >= m_.count) return;
    tell(threadIdx.x, k);
  }
  // By one thread: how much the peer has said is there, which it has said in order.
  __device__ uint32_t heard(uint32_t peer) const {
    const uint32_t* word = m_.flags[m_.rank] + (blockIdx.x * kMostRanks + peer) * kFlagWords;
    uint32_t seen;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(word) : "memory");
    return int32_t(seen - base_) < 0 ? 0 : seen - base_;
  }
  __device__ bool is_stuck(uint64_t looks) const {
    if (looks % 1024 != 1023) return false;
    if (looks > kMostLooks) *m_.stuck = 1;
    return *reinterpret_cast<volatile uint32_t*>(m_.stuck) != 0;
  }
  __device__ void tell_one(uint32_t peer, uint32_t k) {
    __syncthreads();
    if (threadIdx.x == 0) tell(peer, k);
  }
  __device__ void await_all(uint32_t k) {
    if (threadIdx.x < m_.count && threadIdx.x != m_.rank) await(threadIdx.x, k);
    __syncthreads();
  }
  __device__ void await_one(uint32_t peer, uint32_t k) {
    if (threadIdx.x == 0) await(peer, k);
    __syncthreads();
  }

  __device__ void tell(uint32_t peer, uint32_t k) const {
    uint32_t* word = m_.flags[peer] + (blockIdx.x * kMostRanks + m_.rank) * kFlagWords;
    asm volatile("fence.acq_rel.sys; st.relaxed.sys.global.u32 [%0], %1;" ::"l"(word), "r"(base_ + k)
                 : "memory");
  }

 private:
  __device__ void await(uint32_t peer, uint32_t k) {
    const uint32_t* word = m_.flags[m_.rank] + (blockIdx.x * kMostRanks + peer) * kFlagWords;
    uint32_t seen = base_ - 1;
    for (uint64_t looks = 0; int32_t(seen - (base_ + k)) < 0; ++looks) {
      asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(word) : "memory");
      if (looks % 1024 == 1023 && (looks > kMostLooks || *reinterpret_cast<volatile uint32_t*>(m_.stuck))) {
        *m_.stuck = 1;
        return;
      }
    }
  }
  const Memory& m_;
  const uint32_t base_;
};

__device__ float4 operator+(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

// Of kFrom sources, each loaded once, their sum to kTo destinations.
template <int kFrom, int kTo, uint32_t kUnits = 4>
__device__ void move(const std::array<const float4*, kFrom>& from, const std::array<float4*, kTo>& to,
                     uint64_t packs) {
  for (uint64_t first = threadIdx.x; first < packs; first += kUnits * kThreads) {
    float4 v[kUnits][kFrom];
#pragma unroll
    for (int s = 0; s < kFrom; ++s)
#pragma unroll
      for (uint32_t u = 0; u < kUnits; ++u)
        if (first + u * kThreads < packs) v[u][s] = from[s][first + u * kThreads];
#pragma unroll
    for (uint32_t u = 0; u < kUnits; ++u)
#pragma unroll
      for (int s = 1; s < kFrom; ++s) v[u][0] = v[u][0] + v[u][s];
#pragma unroll
    for (int d = 0; d < kTo; ++d)
#pragma unroll
      for (uint32_t u = 0; u < kUnits; ++u)
        if (first + u * kThreads < packs) to[d][first + u * kThreads] = v[u][0];
  }
}
__device__ void copy(float4* to, const float4* from, uint64_t packs) { move<1, 1>({from}, {to}, packs); }

// kRanks parts of `part` packs make the whole; this block has [first, first + length) of every part.
template <uint32_t kRanks>
struct Span {
  uint64_t part, first, length, tile;
  __device__ uint32_t tiles() const { return uint32_t((length + tile - 1) / tile); }
  __device__ uint64_t at(uint64_t chunk, uint32_t t) const { return chunk * part + first + t * tile; }
  __device__ uint64_t packs(uint32_t t) const { return min(tile, length - t * tile); }
};

// Sources at the same place of all ranks' memory, this rank's first.
template <uint32_t kRanks>
__device__ std::array<const float4*, kRanks> of_all(float4* const* memory, uint32_t rank, uint64_t at) {
  std::array<const float4*, kRanks> all;
#pragma unroll
  for (uint32_t s = 0; s < kRanks; ++s) all[s] = memory[(rank + s) % kRanks] + at;
  return all;
}

// A call on one block.
template <uint32_t n>
class Call {
 public:
  __device__ Call(const Memory& memory, uint32_t call, uint64_t packs, uint64_t tile)
      : m(memory), block(memory, call), r(memory.rank), next((r + 1) % n), before((r + n - 1) % n) {
    s.part = packs;
    const uint64_t each = (packs + gridDim.x - 1) / gridDim.x;
    s.first = min(packs, each * blockIdx.x);
    s.length = min(packs, s.first + each) - s.first;
    s.tile = tile;
    tiles = s.tiles();
    block.tell_all(0);
    block.await_all(0);
  }
  __device__ void end() {
    block.tell_all(kEnd);
    block.await_all(kEnd);
  }

  __device__ void send_put() {
    for (uint32_t t = 0; t < tiles; ++t) copy(m.out[next] + s.at(0, t), m.in[r] + s.at(0, t), s.packs(t));
  }

  __device__ void send_put_eight() {
    for (uint32_t t = 0; t < tiles; ++t)
      move<1, 1, 8>({m.in[r] + s.at(0, t)}, {m.out[next] + s.at(0, t)}, s.packs(t));
  }

  __device__ void send_pull() {
    for (uint32_t t = 0; t < tiles; ++t) copy(m.out[r] + s.at(0, t), m.in[before] + s.at(0, t), s.packs(t));
  }

  template <Way kWay>
  __device__ void gather_put() {
    for (uint32_t t = 0; t < tiles; ++t) {
      const uint64_t at = s.at(r, t);
      if constexpr (kWay == Way::kGatherPutTogether) {
        std::array<float4*, n> to;
#pragma unroll
        for (uint32_t d = 0; d < n; ++d) to[d] = m.out[(r + d) % n] + at;
        move<1, n>({m.in[r] + s.at(0, t)}, to, s.packs(t));
      } else {
        for (uint32_t d = 1; d <= n; ++d) copy(m.out[(r + d) % n] + at, m.in[r] + s.at(0, t), s.packs(t));
      }
    }
  }

  __device__ void gather_pull_together() {
    for (uint32_t t = 0; t < tiles; ++t)
      for (uint64_t i = threadIdx.x; i < s.packs(t); i += 2 * kThreads) {
        float4 v[2][n];
#pragma unroll
        for (uint32_t d = 0; d < n; ++d)
#pragma unroll
          for (uint32_t u = 0; u < 2; ++u)
            if (i + u * kThreads < s.packs(t)) v[u][d] = m.in[(r + d) % n][s.at(0, t) + i + u * kThreads];
#pragma unroll
        for (uint32_t d = 0; d < n; ++d)
#pragma unroll
          for (uint32_t u = 0; u < 2; ++u)
            if (i + u * kThreads < s.packs(t)) m.out[r][s.at((r + d) % n, t) + i + u * kThreads] = v[u][d];
      }
  }

  template <uint32_t kUnits>
  __device__ void gather_pull_in_turn() {
    for (uint32_t t = 0; t < tiles; ++t)
      for (uint32_t d = 1; d <= n; ++d) {
        const uint32_t p = (r + d) % n;
        move<1, 1, kUnits>({m.in[p] + s.at(0, t)}, {m.out[r] + s.at(p, t)}, s.packs(t));
      }
  }

  // Step d of tile t is in turn t + d, so a turn waits for one.
  __device__ void gather_ring() {
    for (uint32_t turn = 0; turn < tiles + n - 2; ++turn) {
      if (turn != 0) block.await_one(before, turn);
      for (uint32_t d = 0; d + 1 < n; ++d) {
        const uint32_t t = turn - d, chunk = (r + n - d) % n;
        if (t >= tiles) continue;
        if (d == 0)
          move<1, 2>({m.in[r] + s.at(0, t)}, {m.out[r] + s.at(r, t), m.out[next] + s.at(r, t)}, s.packs(t));
        else
          copy(m.out[next] + s.at(chunk, t), m.out[r] + s.at(chunk, t), s.packs(t));
      }
      block.tell_one(next, turn + 1);
    }
  }

  __device__ void scatter_pull() {
    for (uint32_t t = 0; t < tiles; ++t)
      move<n, 1>(of_all<n>(const_cast<float4* const*>(m.in), r, s.at(r, t)), {m.out[r] + s.at(0, t)},
                 s.packs(t));
  }

  template <Way kWay>
  __device__ void sum_put() {
    for (uint32_t t = 0; t <= tiles; ++t) {
      if (t < tiles)
        for (uint32_t d = 1; d < n; ++d) {
          const uint32_t p = (r + d) % n;
          copy(m.scratch[p] + s.at(r, t), m.in[r] + s.at(p, t), s.packs(t));
        }
      if (t != 0) {
        block.await_all(t);
        std::array<const float4*, n> parts;
        parts[0] = m.in[r] + s.at(r, t - 1);
#pragma unroll
        for (uint32_t d = 1; d < n; ++d) parts[d] = m.scratch[r] + s.at((r + d) % n, t - 1);
        const bool all = kWay == Way::kReduceAllPut;
        float4* const own = m.out[r] + s.at(all ? r : 0, t - 1);
        move<n, 1>(parts, {own}, s.packs(t - 1));
        if (all)
          for (uint32_t d = 1; d < n; ++d) copy(m.out[(r + d) % n] + s.at(r, t - 1), own, s.packs(t - 1));
      }
      block.tell_all(t + 1);
    }
    block.await_all(tiles + 1);
  }

  template <Way kWay>
  __device__ void reduce_all_pull() {
    for (uint32_t t = 0; t < tiles; ++t) {
      const uint64_t at = s.at(r, t);
      const auto from = of_all<n>(const_cast<float4* const*>(m.in), r, at);
      if constexpr (kWay == Way::kReduceAllTogether) {
        std::array<float4*, n> to;
#pragma unroll
        for (uint32_t d = 0; d < n; ++d) to[d] = m.out[(r + d) % n] + at;
        move<n, n>(from, to, s.packs(t));
      } else {
        move<n, 1>(from, {m.out[r] + at}, s.packs(t));
        for (uint32_t d = 1; d < n; ++d) copy(m.out[(r + d) % n] + at, m.out[r] + at, s.packs(t));
      }
    }
  }

  // As the library: loads and stores go to the ranks in their order.
  __device__ void reduce_all_by_rank() {
    for (uint32_t t = 0; t < tiles; ++t) {
      const uint64_t at = s.at(r, t);
      std::array<float4*, n> to;
#pragma unroll
      for (uint32_t d = 0; d < n; ++d) to[d] = m.out[d] + at;
      move<n, n>(of_all<n>(const_cast<float4* const*>(m.in), 0, at), to, s.packs(t));
    }
  }

  // What is summed up goes round: step d of tile t is in turn t + d.
  __device__ void reduce_all_pull_ring() {
    for (uint32_t turn = 0; turn < tiles + n - 2; ++turn) {
      if (turn != 0) block.await_one(before, turn);
      for (uint32_t d = 0; d + 1 < n; ++d) {
        const uint32_t t = turn - d, chunk = (r + n - d) % n;
        if (t >= tiles) continue;
        const uint64_t at = s.at(chunk, t);
        if (d == 0)
          move<n, 2>(of_all<n>(const_cast<float4* const*>(m.in), r, at), {m.out[r] + at, m.out[next] + at},
                     s.packs(t));
        else
          copy(m.out[next] + at, m.out[r] + at, s.packs(t));
      }
      block.tell_one(next, turn + 1);
    }
  }

  __device__ void reduce_all_ring() {
    constexpr uint32_t kSteps = 2 * (n - 1);
    for (uint32_t turn = 0; turn < tiles + kSteps - 1; ++turn) {
      if (turn != 0) block.await_one(before, turn);
      for (uint32_t d = 0; d < kSteps; ++d)
        if (turn - d < tiles) ring_step(d, s.at(0, turn - d), s.packs(turn - d));
      block.tell_one(next, turn + 1);
    }
    block.await_one(before, tiles + kSteps - 1);
  }
  // Each step is awaited and told by itself. Staggered, blocks begin with tiles of different lengths.
  template <bool kStaggered>
  __device__ void reduce_all_ring_in_step() {
    const uint64_t first = kStaggered ? max(uint64_t(1), s.tile * (blockIdx.x + 1) / gridDim.x) : s.tile;
    uint32_t told = 0;
    for (uint64_t begin = 0, end = first; begin < s.length; begin = end, end += s.tile)
      for (uint32_t d = 0; d < 2 * (n - 1); ++d) {
        if (told != 0) block.await_one(before, told);
        ring_step(d, s.at(0, 0) + begin, min(end, s.length) - begin);
        block.tell_one(next, ++told);
      }
    block.await_one(before, told);
  }
  __device__ void ring_step(uint32_t d, uint64_t inside, uint64_t length) {
    const uint64_t at = inside + (r + 2 * n - d) % n * s.part;
    if (d == 0)
      copy(m.scratch[next] + at, m.in[r] + at, length);
    else if (d + 1 < n)
      move<2, 1>({m.scratch[r] + at, m.in[r] + at}, {m.scratch[next] + at}, length);
    else if (d + 1 == n)
      move<2, 2>({m.scratch[r] + at, m.in[r] + at}, {m.out[r] + at, m.out[next] + at}, length);
    else
      copy(m.out[next] + at, m.out[r] + at, length);
  }

  // Of a reduce, rank 0 is the last one.
  template <Way kWay>
  __device__ void chain() {
    constexpr bool kSums = kWay == Way::kReduceChain;
    const uint32_t place = kSums ? n - 1 - r : r, to = kSums ? before : next, from = kSums ? next : before;
    for (uint32_t t = 0; t < tiles; ++t) {
      const uint64_t at = s.at(0, t), length = s.packs(t);
      if (place != 0) block.await_one(from, t + 1);
      if constexpr (kSums) {
        float4* const where = place == n - 1 ? m.out[r] + at : m.scratch[to] + at;
        if (place == 0)
          copy(where, m.in[r] + at, length);
        else
          move<2, 1>({m.scratch[r] + at, m.in[r] + at}, {where}, length);
      } else {
        if (place != n - 1) copy(m.out[to] + at, place == 0 ? m.in[r] + at : m.out[r] + at, length);
      }
      if (place != n - 1) block.tell_one(to, t + 1);
    }
  }

  // Part p is for rank p + 1 first.
  __device__ void broadcast_split() {
    for (uint32_t t = 0; t < tiles; ++t) {
      if (r == 0) {
        for (uint32_t d = 0; d < n - 1; ++d) {
          const uint32_t p = (d + t) % (n - 1);
          copy(m.out[p + 1] + s.at(p, t), m.in[0] + s.at(p, t), s.packs(t));
        }
        block.tell_all(t + 1);
      } else {
        block.await_one(0, t + 1);
        for (uint32_t d = 1; d < n - 1; ++d)
          copy(m.out[(r - 1 + d) % (n - 1) + 1] + s.at(r - 1, t), m.out[r] + s.at(r - 1, t), s.packs(t));
      }
    }
  }

  __device__ void reduce_split_put() {
    for (uint32_t t = 0; t <= tiles + 1; ++t) {
      if (r != 0) {
        if (t < tiles)
          for (uint32_t d = 1; d < n - 1; ++d) {
            const uint32_t p = (r - 1 + d) % (n - 1);
            copy(m.scratch[p + 1] + s.at(r - 1, t), m.in[r] + s.at(p, t), s.packs(t));
          }
        if (t != 0 && t <= tiles) {
          block.await_all(t);
          std::array<const float4*, n - 1> parts;
          parts[0] = m.in[r] + s.at(r - 1, t - 1);
#pragma unroll
          for (uint32_t d = 1; d < n - 1; ++d) parts[d] = m.scratch[r] + s.at((r - 1 + d) % (n - 1), t - 1);
          move<n - 1, 1>(parts, {m.scratch[0] + s.at(r - 1, t - 1)}, s.packs(t - 1));
        }
      } else if (t > 1) {
        block.await_all(t);
        for (uint32_t p = 0; p < n - 1; ++p) {
          const uint64_t at = s.at(p, t - 2);
          move<2, 1>({m.scratch[0] + at, m.in[0] + at}, {m.out[0] + at}, s.packs(t - 2));
        }
      }
      block.tell_all(t + 1);
    }
  }

  __device__ void reduce_split_pull() {
    if (r != 0)
      for (uint32_t t = 0; t < tiles; ++t)
        move<n, 1>(of_all<n>(const_cast<float4* const*>(m.in), r, s.at(r - 1, t)),
                   {m.out[0] + s.at(r - 1, t)}, s.packs(t));
  }

 protected:
  static constexpr uint32_t kEnd = 0xffff;
  const Memory& m;
  Block block;
  Span<n> s;
  const uint32_t r, next, before;
  uint32_t tiles;
};

}  // namespace link_probe
