// The same algorithms as plans of the language, written by hand for one size and one launch each, without
// anything that yields: a one-shot all_reduce in packets, and an all_gather that copies out of its peers'
// buffers.
//
//   packet: 8 bytes of data in 16, each 4 beside a flag of 4, as in the library's packets (docs/design/0010).
//   Flags
//           are the number of the call; two buffers take turns: who sends call k + 2 has heard call k + 1 of
//           everybody, who had ended call k by then.
//   copy:   a block of each rank meets its namesakes before it reads (their input is there) and after (they
//   have
//           read): a release each, by a store into the peer, and an acquire.
#pragma once
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

namespace gpu_bench {

inline constexpr int kMostPeers = 16;
inline constexpr size_t kPacketBytes = 64 << 10;  // the largest all_reduce in packets
inline constexpr size_t kPacketUnits = kPacketBytes / 8;
inline constexpr uint32_t kMostGrid = 64;
inline constexpr uint32_t kHandThreads = 512;

struct HandFlags {
  uint32_t ready[kMostPeers][kMostGrid];  // written by the peer of the first index
  uint32_t read[kMostPeers][kMostGrid];
};

// Of one rank: its own memory that peers write, and theirs.
struct HandPeers {
  uint4* packets[kMostPeers];  // [2][ranks][kPacketUnits]
  HandFlags* flags[kMostPeers];
  const std::byte* inputs[kMostPeers];
  int rank, ranks;
};

__device__ inline void store_packet(uint4* to, uint32_t first, uint32_t second, uint32_t flag) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(first), "r"(flag),
               "r"(second), "r"(flag)
               : "memory");
}
__device__ inline uint2 load_packet(const uint4* from, uint32_t flag) {
  uint32_t first, first_flag, second, second_flag;
  do {
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(first), "=r"(first_flag), "=r"(second), "=r"(second_flag)
                 : "l"(from)
                 : "memory");
  } while (first_flag != flag || second_flag != flag);
  return {first, second};
}

// Launched early or not: what stands before it in the stream has ended and is visible.
__device__ inline void await_stream() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__global__ void __launch_bounds__(kHandThreads)
    hand_all_reduce(const __grid_constant__ HandPeers peers, const float* input, float* output, size_t count,
                    uint32_t call) {
  await_stream();
  const size_t half = size_t(call % 2) * peers.ranks * kPacketUnits;
  const size_t units = (count + 1) / 2;
  const size_t first = blockIdx.x * size_t(blockDim.x) + threadIdx.x, step = size_t(gridDim.x) * blockDim.x;
  const auto own = [&](size_t unit) {
    if (2 * unit + 1 < count) return reinterpret_cast<const uint2*>(input)[unit];
    return uint2{__float_as_uint(input[2 * unit]), 0u};
  };
  for (size_t unit = first; unit < units; unit += step) {
    const uint2 mine = own(unit);
    for (int peer = 0; peer < peers.ranks; ++peer)
      if (peer != peers.rank)
        store_packet(peers.packets[peer] + half + peers.rank * kPacketUnits + unit, mine.x, mine.y, call);
  }
  for (size_t unit = first; unit < units; unit += step) {
    float low = 0, high = 0;
    for (int peer = 0; peer < peers.ranks;
         ++peer) {  // in the order of the ranks: everybody has the same bits
      const uint2 pair =
          peer == peers.rank
              ? own(unit)
              : load_packet(peers.packets[peers.rank] + half + peer * kPacketUnits + unit, call);
      low = peer == 0 ? __uint_as_float(pair.x) : low + __uint_as_float(pair.x);
      high = peer == 0 ? __uint_as_float(pair.y) : high + __uint_as_float(pair.y);
    }
    if (2 * unit + 1 < count)
      reinterpret_cast<float2*>(output)[unit] = {low, high};
    else
      output[2 * unit] = low;
  }
}

// The block's namesakes on all ranks have come as far.
__device__ inline void meet(const HandPeers& peers, uint32_t (HandFlags::*flags)[kMostPeers][kMostGrid],
                            uint32_t call) {
  __syncthreads();
  if (int(threadIdx.x) < peers.ranks && int(threadIdx.x) != peers.rank) {
    // Release: pairs with the acquire below, on the peer.
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(
                     &(peers.flags[threadIdx.x]->*flags)[peers.rank][blockIdx.x]),
                 "r"(call)
                 : "memory");
    uint32_t seen;
    do
      asm volatile("ld.acquire.sys.global.u32 %0, [%1];"
                   : "=r"(seen)
                   : "l"(&(peers.flags[peers.rank]->*flags)[threadIdx.x][blockIdx.x])
                   : "memory");
    while (int32_t(seen - call) < 0);
  }
  __syncthreads();
}

// This block's stretch of a part of `bytes`, which is a multiple of 16.
__device__ inline void copy_stretch(std::byte* to, const std::byte* from, size_t bytes) {
  constexpr int kAtOnce = 8;
  const size_t packs = bytes / 16, each = (packs + gridDim.x - 1) / gridDim.x;
  const size_t begin = min(packs, blockIdx.x * each), end = min(packs, begin + each);
  const auto* source = reinterpret_cast<const uint4*>(from);
  auto* target = reinterpret_cast<uint4*>(to);
  size_t at = begin + threadIdx.x;
  for (; at + (kAtOnce - 1) * blockDim.x < end; at += kAtOnce * blockDim.x) {
    uint4 values[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) values[k] = source[at + k * blockDim.x];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) target[at + k * blockDim.x] = values[k];
  }
  for (; at < end; at += blockDim.x) target[at] = source[at];
}

__global__ void __launch_bounds__(kHandThreads)
    hand_all_gather(const __grid_constant__ HandPeers peers, std::byte* output, size_t part_bytes,
                    uint32_t call) {
  await_stream();
  meet(peers, &HandFlags::ready, call);
  for (int step = 0; step < peers.ranks; ++step) {
    const int source = (peers.rank + step) % peers.ranks;
    copy_stretch(output + source * part_bytes, peers.inputs[source], part_bytes);
  }
  meet(peers, &HandFlags::read, call);
}

}  // namespace gpu_bench
