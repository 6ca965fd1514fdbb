// What a form of packets costs (src/device/packets.h): two GPUs send each other messages whose data says by
// itself that it is there, and nothing else happens. One kernel of many rounds on each GPU; round k goes by
// slot k % 2, which is free because the peer's thread of that place sends round k - 1 when it has read k - 2.
//
//   narrow   8 bytes stored whole: 4 of data, 4 of flag                     half of what goes is data
//   wide     16 bytes stored whole (st.b128): 12 of data, 4 of flag         three quarters
//   line     128 bytes of 8 threads: 120 of data, 8 of flag, as NCCL's LL128: relies on a line of a warp's
//            stores being whole, which PTX does not say                     fifteen sixteenths
//   plain    16 bytes of data, then a barrier, a release and a word; the peer acquires it
//
// Also whether 16 bytes stored whole are seen whole (a word whose halves are of two rounds is counted), and
// the same of lines.
//
//   packet_probe        a table: us a round of the slower GPU, the median of seven launches
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "probe.h"

namespace {

constexpr int kLaunches = 7;
constexpr uint32_t kThreads = 512, kRounds = 64;
constexpr uint64_t kMostBytes = 4 << 20, kSlotBytes = 2 * kMostBytes;
constexpr uint32_t kMostLooks = 1u << 21;  // then the peer is not there

enum class Form { kNarrow, kWide, kLine, kPlain };
constexpr const char* kNames[] = {"narrow", "wide", "line", "plain"};

struct Pair {
  uint64_t low, high;
};

struct Memory {
  std::byte* slots;  // ours: two, which the peer writes
  std::byte* peer_slots;
  uint64_t* counts;  // ours: a word for each block
  uint64_t* peer_counts;
  const Pair* input;
  Pair* output;
  uint32_t* torn;  // words, or lines, whose parts were of two rounds
  uint32_t* stuck;
};

__device__ void store(void* to, Pair v) {
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(v.low), "l"(v.high) : "memory");
}
__device__ Pair load(const void* from) {
  Pair v;
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(v.low), "=l"(v.high)
               : "l"(from)
               : "memory");
  return v;
}
__device__ void store_whole(void* to, Pair v) {
  asm volatile("{ .reg .b128 w; mov.b128 w, {%1, %2}; st.relaxed.sys.global.b128 [%0], w; }" ::"l"(to),
               "l"(v.low), "l"(v.high)
               : "memory");
}
__device__ Pair load_whole(const void* from) {
  Pair v;
  asm volatile("{ .reg .b128 w; ld.relaxed.sys.global.b128 w, [%2]; mov.b128 {%0, %1}, w; }"
               : "=l"(v.low), "=l"(v.high)
               : "l"(from)
               : "memory");
  return v;
}

// What a unit of the round says: its first eight bytes change from round to round, so that what is torn
// shows.
__device__ Pair data_of(const Memory& m, uint64_t pack, uint32_t flag) {
  Pair v = m.input[pack];
  v.low += flag;
  v.high += flag;
  return v;
}
__device__ void check(const Memory& m, Pair v, uint64_t pack, uint32_t flag) {
  const Pair own = m.input[pack];  // both inputs are the same
  if (v.low != own.low + flag || v.high != own.high + flag) atomicAdd(m.torn, 1);
  m.output[pack] = v;
}

template <class Seen>
__device__ void wait(const Memory& m, Seen&& seen) {
  for (uint32_t looks = 0; !seen(); ++looks)
    if (looks % 1024 == 1023 && (looks > kMostLooks || *reinterpret_cast<volatile uint32_t*>(m.stuck) != 0)) {
      *m.stuck = 1;
      return;
    }
}

// All of a block's packs, [first, end), by 16 bytes a thread.
__device__ void narrow(const Memory& m, std::byte* to, const std::byte* from, uint64_t first, uint64_t end,
                       uint32_t flag) {
  const uint64_t high = uint64_t(flag) << 32;
  const uint64_t plane = 16 * (end - first);
  to += 32 * first, from += 32 * first;
  for (uint64_t p = first + threadIdx.x; p < end; p += kThreads) {
    const Pair v = data_of(m, p, flag);
    std::byte* at = to + 16 * (p - first);
    store(at, {high | uint32_t(v.low), high | v.low >> 32});
    store(at + plane, {high | uint32_t(v.high), high | v.high >> 32});
  }
  for (uint64_t p = first + threadIdx.x; p < end; p += kThreads) {
    const std::byte* at = from + 16 * (p - first);
    Pair a, b;
    wait(m, [&] {
      a = load(at);
      b = load(at + plane);
      return a.low >> 32 == flag && a.high >> 32 == flag && b.low >> 32 == flag && b.high >> 32 == flag;
    });
    check(m, {uint32_t(a.low) | a.high << 32, uint32_t(b.low) | b.high << 32}, p, flag);
  }
}

// Three packs a thread make four words: packs u, units + u, 2 units + u of the block, words likewise in
// planes.
__device__ void wide(const Memory& m, std::byte* to, const std::byte* from, uint64_t first, uint64_t end,
                     uint32_t flag) {
  const uint64_t high = uint64_t(flag) << 32, packs = end - first, units = (packs + 2) / 3,
                 plane = 16 * units;
  to += 32 * first, from += 32 * first;
  for (uint64_t u = threadIdx.x; u < units; u += kThreads) {
    Pair v[3] = {};
    for (int k = 0; k < 3; ++k)
      if (k * units + u < packs) v[k] = data_of(m, first + k * units + u, flag);
    std::byte* at = to + 16 * u;
    store_whole(at, {v[0].low, high | uint32_t(v[0].high)});
    store_whole(at + plane, {v[0].high >> 32 | v[1].low << 32, high | v[1].low >> 32});
    store_whole(at + 2 * plane, {v[1].high, high | uint32_t(v[2].low)});
    store_whole(at + 3 * plane, {v[2].low >> 32 | v[2].high << 32, high | v[2].high >> 32});
  }
  for (uint64_t u = threadIdx.x; u < units; u += kThreads) {
    const std::byte* at = from + 16 * u;
    Pair w[4];
    wait(m, [&] {
      for (int k = 0; k < 4; ++k) w[k] = load_whole(at + k * plane);
      return w[0].high >> 32 == flag && w[1].high >> 32 == flag && w[2].high >> 32 == flag &&
             w[3].high >> 32 == flag;
    });
    const Pair v[3] = {{w[0].low, uint32_t(w[0].high) | w[1].low << 32},
                       {w[1].low >> 32 | w[1].high << 32, w[2].low},
                       {uint32_t(w[2].high) | w[3].low << 32, w[3].low >> 32 | w[3].high << 32}};
    for (int k = 0; k < 3; ++k)
      if (k * units + u < packs) check(m, v[k], first + k * units + u, flag);
  }
}

// Words of 8 bytes: a thread's two lie side by side, but for every eighth thread, whose second is the flag.
__device__ void line(const Memory& m, std::byte* to, const std::byte* from, uint64_t first, uint64_t end,
                     uint32_t flag) {
  const auto* input = reinterpret_cast<const uint64_t*>(m.input);
  auto* output = reinterpret_cast<uint64_t*>(m.output);
  const uint64_t words = 2 * (end - first), lines = (words + 14) / 15, base = 2 * first;
  to += 32 * first, from += 32 * first;
  const uint32_t in_line = threadIdx.x % 8;
  const bool flags = in_line == 7;
  for (uint64_t l = threadIdx.x / 8; l < lines; l += kThreads / 8) {
    const uint64_t w = 15 * l + 2 * in_line;
    const uint64_t low = w < words ? input[base + w] + flag : 0;
    const uint64_t high = flags ? flag : w + 1 < words ? input[base + w + 1] + flag : 0;
    store(to + 128 * l + 16 * in_line, {low, high});
  }
  const uint64_t turns = (lines + kThreads / 8 - 1) / (kThreads / 8);
  for (uint64_t t = 0; t < turns; ++t) {
    const uint64_t l = t * (kThreads / 8) + threadIdx.x / 8;
    const bool mine = l < lines;
    Pair v{};
    wait(m, [&] {
      if (mine) v = load(from + 128 * l + 16 * in_line);
      return !__any_sync(~0u, mine && flags && v.high != flag);
    });
    const uint64_t w = 15 * l + 2 * in_line;
    if (!mine) continue;
    if (w < words) {
      if (v.low != input[base + w] + flag) atomicAdd(m.torn, 1);
      output[base + w] = v.low;
    }
    if (!flags && w + 1 < words) {
      if (v.high != input[base + w + 1] + flag) atomicAdd(m.torn, 1);
      output[base + w + 1] = v.high;
    }
  }
}

__device__ void plain(const Memory& m, std::byte* to, const std::byte* from, uint64_t first, uint64_t end,
                      uint32_t flag) {
  for (uint64_t p = first + threadIdx.x; p < end; p += kThreads)
    *reinterpret_cast<uint4*>(to + 16 * p) = [&] {
      const Pair v = data_of(m, p, flag);
      return make_uint4(uint32_t(v.low), uint32_t(v.low >> 32), uint32_t(v.high), uint32_t(v.high >> 32));
    }();
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile(
        "fence.acq_rel.sys; st.relaxed.sys.global.u64 [%0], %1;" ::"l"(m.peer_counts + 16 * blockIdx.x),
        "l"(uint64_t(flag))
        : "memory");
    wait(m, [&] {
      uint64_t seen;
      asm volatile("ld.acquire.sys.global.u64 %0, [%1];"
                   : "=l"(seen)
                   : "l"(m.counts + 16 * blockIdx.x)
                   : "memory");
      return seen >= flag;
    });
  }
  __syncthreads();
  for (uint64_t p = first + threadIdx.x; p < end; p += kThreads) check(m, load(from + 16 * p), p, flag);
}

template <Form kForm>
__global__ void __launch_bounds__(kThreads) exchange(const Memory m, uint64_t packs, uint32_t before) {
  const uint64_t each = (packs + gridDim.x - 1) / gridDim.x;
  const uint64_t first = min(packs, each * blockIdx.x), end = min(packs, first + each);
  for (uint32_t k = 1; k <= kRounds; ++k) {
    const uint32_t flag = before + k;
    std::byte* to = m.peer_slots + (flag % 2) * kSlotBytes;
    const std::byte* from = m.slots + (flag % 2) * kSlotBytes;
    if constexpr (kForm == Form::kNarrow) narrow(m, to, from, first, end, flag);
    if constexpr (kForm == Form::kWide) wide(m, to, from, first, end, flag);
    if constexpr (kForm == Form::kLine) line(m, to, from, first, end, flag);
    if constexpr (kForm == Form::kPlain) plain(m, to, from, first, end, flag);
  }
}

class Probe {
 public:
  Probe() {
    std::vector<uint64_t> input(kMostBytes / 8);
    for (size_t k = 0; k < input.size(); ++k) input[k] = k * 0x9e3779b97f4a7c15;
    for (int r = 0; r < 2; ++r) {
      Gpu& gpu = gpus_[r];
      CUDA(cudaSetDevice(r));
      CUDA(cudaDeviceEnablePeerAccess(1 - r, 0));
      CUDA(cudaStreamCreateWithFlags(&gpu.stream, cudaStreamNonBlocking));
      CUDA(cudaEventCreate(&gpu.begin));
      CUDA(cudaEventCreate(&gpu.end));
      gpu.memory.slots = zeroed<std::byte>(2 * kSlotBytes);
      gpu.memory.counts = zeroed<uint64_t>(1024 * 16 * 8);
      gpu.memory.output = zeroed<Pair>(kMostBytes);
      gpu.memory.torn = zeroed<uint32_t>(256);
      gpu.memory.stuck = zeroed<uint32_t>(256);
      auto* copy = zeroed<Pair>(kMostBytes);
      CUDA(cudaMemcpy(copy, input.data(), kMostBytes, cudaMemcpyHostToDevice));
      gpu.memory.input = copy;
      CUDA(cudaDeviceSynchronize());
    }
    for (int r = 0; r < 2; ++r) {
      gpus_[r].memory.peer_slots = gpus_[1 - r].memory.slots;
      gpus_[r].memory.peer_counts = gpus_[1 - r].memory.counts;
    }
  }

  template <Form kForm>
  void measure(uint64_t bytes, uint32_t blocks) {
    clear();  // flags of another form, or of other places
    std::vector<double> times;
    for (int launch = 0; launch < kLaunches; ++launch) {
      for (int r = 0; r < 2; ++r) {
        Gpu& gpu = gpus_[r];
        CUDA(cudaSetDevice(r));
        CUDA(cudaEventRecord(gpu.begin, gpu.stream));
        exchange<kForm>
            <<<blocks, kThreads, 0, gpu.stream>>>(gpu.memory, bytes / 16, uint32_t(launch) * kRounds);
        CUDA(cudaGetLastError());
        CUDA(cudaEventRecord(gpu.end, gpu.stream));
      }
      double us = 0;
      for (const Gpu& gpu : gpus_) {
        CUDA(cudaStreamSynchronize(gpu.stream));
        float ms;
        CUDA(cudaEventElapsedTime(&ms, gpu.begin, gpu.end));
        us = std::max(us, 1e3 * ms / kRounds);
      }
      if (launch > 0) times.push_back(us);
    }
    std::sort(times.begin(), times.end());
    const auto [torn, stuck] = faults();
    std::printf("%-7s %8llu %6u %8.2f %8.2f %8.1f %6u%s\n", kNames[int(kForm)],
                static_cast<unsigned long long>(bytes), blocks, times[times.size() / 2], times[0],
                double(bytes) / times[times.size() / 2] / 1e3, torn, stuck != 0 ? "  STUCK" : "");
    std::fflush(stdout);
    if (stuck != 0) std::exit(1);
  }

 private:
  struct Gpu {
    cudaStream_t stream;
    cudaEvent_t begin, end;
    Memory memory;
  };

  void clear() {
    for (int r = 0; r < 2; ++r) {
      CUDA(cudaSetDevice(r));
      const Memory& m = gpus_[r].memory;
      CUDA(cudaMemset(m.slots, 0, 2 * kSlotBytes));
      CUDA(cudaMemset(m.counts, 0, 1024 * 16 * 8));
      CUDA(cudaMemset(m.torn, 0, 4));
      CUDA(cudaMemset(m.stuck, 0, 4));
      CUDA(cudaDeviceSynchronize());
    }
  }
  std::array<uint32_t, 2> faults() {
    std::array<uint32_t, 2> sum{};
    for (int r = 0; r < 2; ++r) {
      uint32_t torn, stuck;
      CUDA(cudaSetDevice(r));
      CUDA(cudaMemcpy(&torn, gpus_[r].memory.torn, 4, cudaMemcpyDeviceToHost));
      CUDA(cudaMemcpy(&stuck, gpus_[r].memory.stuck, 4, cudaMemcpyDeviceToHost));
      sum[0] += torn;
      sum[1] += stuck;
    }
    return sum;
  }

  std::array<Gpu, 2> gpus_;
};

}  // namespace

int main() {
  int count = 0;
  CUDA(cudaGetDeviceCount(&count));
  if (count < 2) {
    std::printf("packet_probe needs two GPUs, here are %d\n", count);
    return 2;
  }
  Probe probe;
  std::printf("%-7s %8s %6s %8s %8s %8s %6s\n", "form", "bytes", "blocks", "median", "least", "GB/s", "torn");
  for (const uint64_t bytes : {8192u, 65536u, 262144u, 524288u, 1048576u, 2097152u, 4194304u})
    for (const uint32_t blocks : {8u, 16u, 32u, 64u}) {
      if (bytes / blocks < 1024) continue;
      probe.measure<Form::kNarrow>(bytes, blocks);
      probe.measure<Form::kWide>(bytes, blocks);
      probe.measure<Form::kLine>(bytes, blocks);
      probe.measure<Form::kPlain>(bytes, blocks);
    }
}
