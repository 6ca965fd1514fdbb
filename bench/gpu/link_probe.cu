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

#include "link_served.h"
#include "link_ways.h"
#include "probe.h"

namespace {

using namespace link_probe;

constexpr int kBursts = 7, kCalls = 6;
constexpr uint64_t kMostBytes = 512 << 20;

constexpr bool is_whole(Way way) {
  return way == Way::kSendPut || way == Way::kSendPutEight || way == Way::kSendPull ||
         way == Way::kBroadcastChain || way == Way::kReduceChain || way == Way::kBroadcastChainServed ||
         way == Way::kReduceChainServed;
}
constexpr bool is_served(Way way) { return way >= Way::kReduceAllRingServed; }
// Which one it is but for who says its words.
constexpr Way plain(Way way) {
  switch (way) {
    case Way::kReduceAllRingServed: return Way::kReduceAllRing;
    case Way::kGatherRingServed: return Way::kGatherRing;
    case Way::kBroadcastChainServed: return Way::kBroadcastChain;
    case Way::kReduceChainServed: return Way::kReduceChain;
    default: return way;
  }
}
constexpr bool is_split(Way way) {
  return way == Way::kBroadcastSplit || way == Way::kReduceSplitPut || way == Way::kReduceSplitPull;
}

template <Way kWay, uint32_t n>
__global__ void __launch_bounds__(kThreads + kServing, 1)
    serve(const __grid_constant__ Memory m, uint64_t packs, uint64_t tile, uint32_t number) {
  __shared__ Progress progress;
  Served<n> call(m, number, packs / (is_whole(kWay) ? 1 : n), tile, progress);
  if constexpr (kWay == Way::kReduceAllRingServed) call.reduce_all_ring();
  if constexpr (kWay == Way::kGatherRingServed) call.gather_ring();
  if constexpr (kWay == Way::kBroadcastChainServed) call.template chain<false>();
  if constexpr (kWay == Way::kReduceChainServed) call.template chain<true>();
  call.end();
}

template <Way kWay, uint32_t n>
__global__ void __launch_bounds__(kThreads, 1)
    run(const __grid_constant__ Memory m, uint64_t packs, uint64_t tile, uint32_t number) {
  Call<n> call(m, number, packs / (is_whole(kWay) ? 1 : is_split(kWay) ? n - 1 : n), tile);
  if constexpr (kWay == Way::kSendPut) call.send_put();
  if constexpr (kWay == Way::kSendPutEight) call.send_put_eight();
  if constexpr (kWay == Way::kSendPull) call.send_pull();
  if constexpr (kWay == Way::kGatherPullTogether) call.gather_pull_together();
  if constexpr (kWay == Way::kGatherPullInTurn) call.template gather_pull_in_turn<4>();
  if constexpr (kWay == Way::kGatherPullEight) call.template gather_pull_in_turn<8>();
  if constexpr (kWay == Way::kGatherRing) call.gather_ring();
  if constexpr (kWay == Way::kScatterPull) call.scatter_pull();
  if constexpr (kWay == Way::kReduceAllByRank) call.reduce_all_by_rank();
  if constexpr (kWay == Way::kReduceAllPullRing) call.reduce_all_pull_ring();
  if constexpr (kWay == Way::kReduceAllRing) call.reduce_all_ring();
  if constexpr (kWay == Way::kReduceAllRingInStep) call.template reduce_all_ring_in_step<false>();
  if constexpr (kWay == Way::kReduceAllRingStaggered) call.template reduce_all_ring_in_step<true>();
  if constexpr (kWay == Way::kBroadcastSplit) call.broadcast_split();
  if constexpr (kWay == Way::kReduceSplitPut) call.reduce_split_put();
  if constexpr (kWay == Way::kReduceSplitPull) call.reduce_split_pull();
  if constexpr (kWay == Way::kGatherPutTogether || kWay == Way::kGatherPutInTurn)
    call.template gather_put<kWay>();
  if constexpr (kWay == Way::kScatterPut || kWay == Way::kReduceAllPut) call.template sum_put<kWay>();
  if constexpr (kWay == Way::kReduceAllTogether || kWay == Way::kReduceAllInTurn)
    call.template reduce_all_pull<kWay>();
  if constexpr (kWay == Way::kBroadcastChain || kWay == Way::kReduceChain) call.template chain<kWay>();
  call.end();
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
__global__ void check(const float4* out, Way way, uint32_t rank, uint32_t count, uint64_t packs,
                      uint32_t* wrong) {
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
          const uint32_t number = call_ + 1 + uint32_t(c);
          if constexpr (is_served(kWay))
            serve<kWay, n>
                <<<blocks, kThreads + kServing, 0, gpu.stream>>>(gpu.memory, packs, tile / 16, number);
          else
            run<kWay, n><<<blocks, kThreads, 0, gpu.stream>>>(gpu.memory, packs, tile / 16, number);
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
      check<<<264, 512, 0, gpu.stream>>>(m.out[m.rank], plain(kWay), m.rank, n, packs, gpu.wrong);
      CUDA(cudaMemcpyAsync(&wrong, gpu.wrong, 4, cudaMemcpyDeviceToHost, gpu.stream));
      CUDA(cudaMemcpyAsync(&stuck, m.stuck, 4, cudaMemcpyDeviceToHost, gpu.stream));
      CUDA(cudaStreamSynchronize(gpu.stream));
      if (wrong != 0 || stuck != 0) {
        std::printf("%s of %llu bytes, %u blocks: %u packs wrong on rank %u%s\n", kNames[int(kWay)],
                    static_cast<unsigned long long>(bytes), blocks, wrong, m.rank,
                    stuck != 0 ? ", stuck" : "");
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
        for (const uint64_t tile : {16u << 10, 32u << 10, 64u << 10, 128u << 10, 256u << 10, 512u << 10}) {
          if (tile < (32 << 10) && !is_served(kWay)) continue;
          const uint64_t share = bytes / (is_whole(kWay) ? 1 : n) / blocks;
          if (tile > (32 << 10) && share < tile / 2) continue;
          if (is_served(kWay) && share / tile > 5000) continue;  // a call has 65,535 words
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
    constexpr Way way = plain(kWay);
    if (way >= Way::kGatherPutTogether && way <= Way::kScatterPut) return double(n - 1) / n;
    if (way >= Way::kReduceAllTogether && way <= Way::kReduceAllRing) return 2. * (n - 1) / n;
    return 1;
  }
  static void print(const char* name, uint64_t bytes, uint32_t blocks, uint64_t tile, double us,
                    double factor) {
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
