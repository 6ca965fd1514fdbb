// What the links of all GPUs give to the ways that a collective can go: each is one kernel, written out, with
// nothing of the library in it. So a plan's gap to its way is the library's, and a way's gap to the floor is
// the links' (docs/design/0023-ways-of-the-links.md).
//
//   link_probe [way...]   a line for each way, size, number of blocks and length of a tile: us a call, the
//                         median of seven bursts; "best" lines behind each size. A wrong result ends it
//
// All blocks of a kernel meet their peers' before it writes anything, and end when what is theirs has come.
// "together": a thread's loads or stores go to all peers at once; "in turn": a tile goes to one peer after
// the other, each rank beginning with the next one. "put" are stores alone, "pull" loads alone.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "probe.h"

namespace {

constexpr uint32_t kMostRanks = 4, kThreads = 512, kMostBlocks = 264, kFlagWords = 16, kUnits = 4;
constexpr int kBursts = 7, kCalls = 6;
constexpr uint64_t kMostBytes = 512 << 20, kMostLooks = 1u << 22;  // then the peer is not there

enum class Way {
  kSendPut, kSendPull, kGatherPutTogether, kGatherPutInTurn, kGatherPullTogether, kGatherPullInTurn,
  kGatherRing, kScatterPull, kScatterPut, kReduceAllTogether, kReduceAllInTurn, kReduceAllPut, kReduceAllRing,
  kBroadcastChain, kBroadcastSplit, kReduceChain, kReduceSplitPut, kReduceSplitPull, kCount
};
constexpr const char* kNames[] = {
    "send: put", "send: pull", "all_gather: put together", "all_gather: put in turn",
    "all_gather: pull together", "all_gather: pull in turn", "all_gather: ring of puts",
    "reduce_scatter: pull together", "reduce_scatter: put in turn, then sum",
    "all_reduce: pull, put together", "all_reduce: pull, put in turn", "all_reduce: put, sum, put in turn",
    "all_reduce: ring of puts", "broadcast: chain of puts", "broadcast: split, put in turn",
    "reduce: chain of puts", "reduce: split, put in turn", "reduce: split, pull together, put"};

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

 private:
  __device__ void tell(uint32_t peer, uint32_t k) {
    uint32_t* word = m_.flags[peer] + (blockIdx.x * kMostRanks + m_.rank) * kFlagWords;
    asm volatile("fence.acq_rel.sys; st.relaxed.sys.global.u32 [%0], %1;" ::"l"(word), "r"(base_ + k) : "memory");
  }
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
template <int kFrom, int kTo>
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

template <Way kWay, uint32_t n>
__global__ void __launch_bounds__(kThreads, 1) run(const __grid_constant__ Memory m, uint64_t packs, uint64_t tile, uint32_t call) {
  constexpr bool kWhole = kWay == Way::kSendPut || kWay == Way::kSendPull || kWay == Way::kBroadcastChain || kWay == Way::kReduceChain;
  constexpr bool kThirds = kWay == Way::kBroadcastSplit || kWay == Way::kReduceSplitPut || kWay == Way::kReduceSplitPull;
  const uint32_t r = m.rank, next = (r + 1) % n, before = (r + n - 1) % n;
  Span<n> s;
  s.part = packs / (kWhole ? 1 : kThirds ? n - 1 : n);
  const uint64_t each = (s.part + gridDim.x - 1) / gridDim.x;
  s.first = min(s.part, each * blockIdx.x);
  s.length = min(s.part, s.first + each) - s.first;
  s.tile = tile;
  const uint32_t tiles = s.tiles();
  Block block(m, call);
  block.tell_all(0);
  block.await_all(0);

  if constexpr (kWay == Way::kSendPut) {
    for (uint32_t t = 0; t < tiles; ++t) copy(m.out[next] + s.at(0, t), m.in[r] + s.at(0, t), s.packs(t));
  }
  if constexpr (kWay == Way::kSendPull) {
    for (uint32_t t = 0; t < tiles; ++t) copy(m.out[r] + s.at(0, t), m.in[before] + s.at(0, t), s.packs(t));
  }
  if constexpr (kWay == Way::kGatherPutTogether || kWay == Way::kGatherPutInTurn) {
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
  if constexpr (kWay == Way::kGatherPullTogether) {
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
  if constexpr (kWay == Way::kGatherPullInTurn) {
    for (uint32_t t = 0; t < tiles; ++t)
      for (uint32_t d = 1; d <= n; ++d) {
        const uint32_t p = (r + d) % n;
        copy(m.out[r] + s.at(p, t), m.in[p] + s.at(0, t), s.packs(t));
      }
  }
  if constexpr (kWay == Way::kGatherRing) {  // step d of tile t is in turn t + d, so a turn waits for one
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
  if constexpr (kWay == Way::kScatterPull) {
    for (uint32_t t = 0; t < tiles; ++t)
      move<n, 1>(of_all<n>(const_cast<float4* const*>(m.in), r, s.at(r, t)), {m.out[r] + s.at(0, t)}, s.packs(t));
  }
  if constexpr (kWay == Way::kScatterPut || kWay == Way::kReduceAllPut) {
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
  if constexpr (kWay == Way::kReduceAllTogether || kWay == Way::kReduceAllInTurn) {
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
  if constexpr (kWay == Way::kReduceAllRing) {
    constexpr uint32_t kSteps = 2 * (n - 1);
    for (uint32_t turn = 0; turn < tiles + kSteps - 1; ++turn) {
      if (turn != 0) block.await_one(before, turn);
      for (uint32_t d = 0; d < kSteps; ++d) {
        const uint32_t t = turn - d, chunk = (r + 2 * n - d) % n;
        if (t >= tiles) continue;
        const uint64_t at = s.at(chunk, t), length = s.packs(t);
        if (d == 0)
          copy(m.scratch[next] + at, m.in[r] + at, length);
        else if (d + 1 < n)
          move<2, 1>({m.scratch[r] + at, m.in[r] + at}, {m.scratch[next] + at}, length);
        else if (d + 1 == n)
          move<2, 2>({m.scratch[r] + at, m.in[r] + at}, {m.out[r] + at, m.out[next] + at}, length);
        else
          copy(m.out[next] + at, m.out[r] + at, length);
      }
      block.tell_one(next, turn + 1);
    }
    block.await_one(before, tiles + kSteps - 1);
  }
  if constexpr (kWay == Way::kBroadcastChain || kWay == Way::kReduceChain) {  // of a reduce, 0 is the last one
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
  if constexpr (kWay == Way::kBroadcastSplit) {  // part p is for rank p + 1 first
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
  if constexpr (kWay == Way::kReduceSplitPut) {
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
          for (uint32_t d = 1; d < n - 1; ++d)
            parts[d] = m.scratch[r] + s.at((r - 1 + d) % (n - 1), t - 1);
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
  if constexpr (kWay == Way::kReduceSplitPull) {
    if (r != 0)
      for (uint32_t t = 0; t < tiles; ++t)
        move<n, 1>(of_all<n>(const_cast<float4* const*>(m.in), r, s.at(r - 1, t)), {m.out[0] + s.at(r - 1, t)}, s.packs(t));
  }
  block.tell_all(0xffff);
  block.await_all(0xffff);
}

// Element i of pack p of rank r's input, exact in any order of sums.
__host__ __device__ float value(uint32_t rank, uint64_t pack) { return float((rank + 1) * (pack % 1021)); }

__global__ void fill(float4* to, uint32_t rank, uint64_t packs) {
  for (uint64_t p = blockIdx.x * blockDim.x + threadIdx.x; p < packs; p += gridDim.x * blockDim.x) {
    const float v = value(rank, p);
    to[p] = {v, v, v, v};
  }
}

// Packs of `out` that are not what `way` makes of the inputs.
__global__ void check(const float4* out, Way way, uint32_t rank, uint32_t count, uint64_t packs, uint32_t* wrong) {
  const uint64_t part = packs / count;
  for (uint64_t p = blockIdx.x * blockDim.x + threadIdx.x; p < packs; p += gridDim.x * blockDim.x) {
    float expected = 0;
    const float all = float(count * (count + 1) / 2);
    if (way <= Way::kSendPull)
      expected = value((rank + count - 1) % count, p);
    else if (way <= Way::kGatherRing) {
      if (p / part >= count) continue;
      expected = value(uint32_t(p / part), p % part);
    } else if (way <= Way::kScatterPut) {
      if (p >= part) continue;
      expected = all * value(0, rank * part + p);
    } else if (way <= Way::kReduceAllRing) {
      if (p >= part * count) continue;
      expected = all * value(0, p);
    } else if (way <= Way::kBroadcastSplit) {
      if (rank == 0 || (way == Way::kBroadcastSplit && p >= packs / (count - 1) * (count - 1))) continue;
      expected = value(0, p);
    } else {
      if (rank != 0 || (way != Way::kReduceChain && p >= packs / (count - 1) * (count - 1))) continue;
      expected = all * value(0, p);
    }
    const float4 v = out[p];
    if (v.x != expected || v.y != expected || v.z != expected || v.w != expected) atomicAdd(wrong, 1);
  }
}

struct Gpu {
  cudaStream_t stream;
  cudaEvent_t begin, end;
  Memory memory;
  uint32_t* wrong;
};

class Probe {
 public:
  explicit Probe(uint32_t count) : gpus_(count) {
    for (uint32_t r = 0; r < count; ++r) {
      CUDA(cudaSetDevice(int(r)));
      for (uint32_t p = 0; p < count; ++p)
        if (p != r) CUDA(cudaDeviceEnablePeerAccess(int(p), 0));
      Gpu& gpu = gpus_[r];
      CUDA(cudaStreamCreateWithFlags(&gpu.stream, cudaStreamNonBlocking));
      CUDA(cudaEventCreate(&gpu.begin));
      CUDA(cudaEventCreate(&gpu.end));
      auto* in = zeroed<float4>(kMostBytes);
      auto* out = zeroed<float4>(kMostBytes);
      auto* scratch = zeroed<float4>(kMostBytes);
      auto* flags = zeroed<uint32_t>(kMostBlocks * kMostRanks * kFlagWords * 4);
      gpu.memory.stuck = zeroed<uint32_t>(256);
      gpu.wrong = zeroed<uint32_t>(256);
      gpu.memory.rank = r;
      gpu.memory.count = count;
      fill<<<264, 512>>>(in, r, kMostBytes / 16);
      CUDA(cudaDeviceSynchronize());
      for (Gpu& other : gpus_) {
        other.memory.in[r] = in;
        other.memory.out[r] = out;
        other.memory.scratch[r] = scratch;
        other.memory.flags[r] = flags;
      }
    }
  }

  template <Way kWay, uint32_t n>
  double measure(uint64_t bytes, uint32_t blocks, uint64_t tile) {
    const uint64_t packs = bytes / 16;
    for (Gpu& gpu : gpus_) {
      CUDA(cudaSetDevice(int(gpu.memory.rank)));
      CUDA(cudaMemsetAsync(gpu.memory.out[gpu.memory.rank], 0xff, bytes, gpu.stream));
      CUDA(cudaStreamSynchronize(gpu.stream));
    }
    std::vector<double> times;
    for (int burst = 0; burst <= kBursts; ++burst) {
      for (Gpu& gpu : gpus_) {
        CUDA(cudaSetDevice(int(gpu.memory.rank)));
        for (int c = 0; c <= kCalls; ++c) {
          run<kWay, n><<<blocks, kThreads, 0, gpu.stream>>>(gpu.memory, packs, tile / 16, call_ + 1 + uint32_t(c));
          if (c == 0) CUDA(cudaEventRecord(gpu.begin, gpu.stream));  // the ranks have met
        }
        CUDA(cudaGetLastError());
        CUDA(cudaEventRecord(gpu.end, gpu.stream));
      }
      call_ += kCalls + 1;
      double us = 0;
      for (const Gpu& gpu : gpus_) {
        CUDA(cudaSetDevice(int(gpu.memory.rank)));
        CUDA(cudaStreamSynchronize(gpu.stream));
        float ms;
        CUDA(cudaEventElapsedTime(&ms, gpu.begin, gpu.end));
        us = std::max(us, 1e3 * ms / kCalls);
      }
      if (burst != 0) times.push_back(us);
    }
    for (Gpu& gpu : gpus_) {
      const Memory& m = gpu.memory;
      uint32_t wrong, stuck;
      CUDA(cudaSetDevice(int(m.rank)));
      check<<<264, 512, 0, gpu.stream>>>(m.out[m.rank], kWay, m.rank, n, packs, gpu.wrong);
      CUDA(cudaMemcpyAsync(&wrong, gpu.wrong, 4, cudaMemcpyDeviceToHost, gpu.stream));
      CUDA(cudaMemcpyAsync(&stuck, m.stuck, 4, cudaMemcpyDeviceToHost, gpu.stream));
      CUDA(cudaStreamSynchronize(gpu.stream));
      if (wrong != 0 || stuck != 0) {
        std::printf("%s of %llu bytes, %u blocks: %u packs wrong on rank %u%s\n", kNames[int(kWay)],
                    static_cast<unsigned long long>(bytes), blocks, wrong, m.rank, stuck != 0 ? ", stuck" : "");
        std::exit(1);
      }
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

  // Bus bandwidth as NCCL's tests define it.
  template <Way kWay, uint32_t n>
  void measure_all() {
    for (const uint64_t bytes : {2u << 20, 8u << 20, 32u << 20, 128u << 20, 512u << 20}) {
      double least = 1e9;
      uint32_t best_blocks = 0;
      uint64_t best_tile = 0;
      for (const uint32_t blocks : {16u, 32u, 64u, 132u})
        for (const uint64_t tile : {32u << 10, 64u << 10, 256u << 10}) {
          if (tile > (32 << 10) && bytes / n / blocks < tile / 2) continue;
          const double us = measure<kWay, n>(bytes, blocks, tile);
          print(kNames[int(kWay)], bytes, blocks, tile, us, factor<kWay, n>());
          if (us < least) least = us, best_blocks = blocks, best_tile = tile;
        }
      std::printf("best ");
      print(kNames[int(kWay)], bytes, best_blocks, best_tile, least, factor<kWay, n>());
    }
  }

 private:
  template <Way kWay, uint32_t n>
  static constexpr double factor() {
    if (kWay >= Way::kGatherPutTogether && kWay <= Way::kScatterPut) return double(n - 1) / n;
    if (kWay >= Way::kReduceAllTogether && kWay <= Way::kReduceAllRing) return 2. * (n - 1) / n;
    return 1;
  }
  static void print(const char* name, uint64_t bytes, uint32_t blocks, uint64_t tile, double us, double factor) {
    std::printf("%-40s %10llu %4u %7llu %9.1f %7.1f\n", name, static_cast<unsigned long long>(bytes), blocks,
                static_cast<unsigned long long>(tile), us, double(bytes) * factor / us / 1e3);
    std::fflush(stdout);
  }

  std::vector<Gpu> gpus_;
  uint32_t call_ = 0;
};

template <uint32_t n, int kWay = 0>
void measure_ways(Probe& probe, int argc, char** argv) {
  bool wanted = argc < 2;
  for (int a = 1; a < argc; ++a) wanted |= std::strstr(kNames[kWay], argv[a]) != nullptr;
  if (wanted) probe.measure_all<Way(kWay), n>();
  if constexpr (kWay + 1 < int(Way::kCount)) measure_ways<n, kWay + 1>(probe, argc, argv);
}

}  // namespace

int main(int argc, char** argv) {
  int count = 0;
  CUDA(cudaGetDeviceCount(&count));
  if (count != 2 && count != 4) {
    std::printf("link_probe needs two or four GPUs, here are %d\n", count);
    return 2;
  }
  Probe probe{uint32_t(count)};
  std::printf("%-40s %10s %4s %7s %9s %7s\n", "way", "bytes", "blks", "tile", "us", "GB/s");
  count == 4 ? measure_ways<4>(probe, argc, argv) : measure_ways<2>(probe, argc, argv);
}
