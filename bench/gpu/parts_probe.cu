// What each part of a small operation costs (docs/design/0007-start-as-a-kernel.md): a one-shot sum of 8
// bytes between two GPUs in one kernel of 64 threads, and the same with one part more, or with several.
// Kernels stand in their streams before the first begins, so no caller counts.
//
//   parts_probe        a table: us an operation, the median and the least of nine rounds of 200
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "probe.h"

namespace {

enum Part : uint32_t {
  kTurn = 1,  // a word is acquired
  kEnds = 2,  // two words behind it
  kTogether = 4,  // the same loads, none behind another
  kVotes = 8,  // three barriers with a vote or without
  kArgument = 16,  // 24 words of an argument of 1.6 KB
  kCreditBefore = 32,  // a word in the peer's memory, before the fence
  kCreditBehind = 64,  // behind it
  kSystemFence = 128,
  kGpuFence = 256,
  kOthers = 512,  // 31 words, one after the other
  kHostFlag = 1024,  // 16 bytes in the host's memory, last
  kTriggers = 2048,  // the next kernel may come once the sum is there
  kNotEarly = 4096,  // launched when the kernel before has ended
};

constexpr int kRounds = 9, kBurst = 200;
constexpr uint32_t kSlots = 8, kSlotPacks = 64, kTurns = 31, kTurnWords = 16, kFlags = 64;

struct Argument {
  uint64_t words[200];
};

struct Memory {
  uint4* slots;  // ours, which the peer writes
  uint4* peer_slots;
  const float2* input;
  float2* output;
  uint64_t* turn;
  const uint64_t* ends;
  uint64_t* peer_credit;
  uint64_t* others;
  uint64_t* flags;  // host memory
};

__device__ void store(uint64_t* to, uint64_t value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}
__device__ uint64_t load(const uint64_t* from) {
  uint64_t value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}
__device__ uint64_t acquire(const uint64_t* from) {
  uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}

// What is loaded is always 0 or small: it only has to be there before what uses it.
template <uint32_t kParts>
__global__ void __launch_bounds__(512)
    operation(const __grid_constant__ Memory m, const __grid_constant__ Argument argument, uint32_t call) {
  if constexpr (!(kParts & kNotEarly)) asm volatile("griddepcontrol.wait;" ::: "memory");
  constexpr uint64_t kNever = uint64_t(1) << 60;
  uint64_t at = 0;
  if constexpr (kParts & kArgument) {
    uint64_t sum = 0;
#pragma unroll
    for (int k = 0; k < 24; ++k) sum += argument.words[8 * k + 3];
    at += sum > kNever;
  }
  if constexpr (kParts & kTurn) at += acquire(m.turn) > kNever;
  if constexpr (kParts & kTogether) at += load(m.turn) > kNever;
  if constexpr (kParts & (kEnds | kTogether)) at += load(&m.ends[0]) + (load(&m.ends[1]) > kNever);
  if constexpr (kParts & kVotes) at += __syncthreads_or(at > kNever);
  const uint32_t place = call % kSlots * kSlotPacks + uint32_t(at);
  const bool leads = threadIdx.x == 0;
  if (leads) {
    const float2 own = *m.input;
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %2};" ::"l"(m.peer_slots + place),
                 "r"(__float_as_uint(own.x)), "r"(call), "r"(__float_as_uint(own.y))
                 : "memory");
  }
  if constexpr (kParts & kVotes) __syncthreads();
  if (leads) {
    uint32_t x, x_flag, y, y_flag;
    do
      asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(x), "=r"(x_flag), "=r"(y), "=r"(y_flag)
                   : "l"(m.slots + place)
                   : "memory");
    while (x_flag != call || y_flag != call);  // the peer's kernel of this number comes: both were launched
    const float2 own = *m.input;
    *m.output = {own.x + __uint_as_float(x), own.y + __uint_as_float(y)};
  }
  if constexpr (kParts & kVotes) __syncthreads_or(at > kNever);
  if constexpr (kParts & kTriggers) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  if (!leads) return;
  if constexpr (kParts & kCreditBefore) store(m.peer_credit, call);
  if constexpr (kParts & kSystemFence) asm volatile("fence.acq_rel.sys;" ::: "memory");
  if constexpr (kParts & kGpuFence) asm volatile("fence.acq_rel.gpu;" ::: "memory");
  if constexpr (kParts & (kSystemFence | kGpuFence)) store(m.turn, call);
  if constexpr (kParts & kOthers)
    for (uint32_t k = 0; k < kTurns; ++k) store(m.others + kTurnWords * k, call);
  if constexpr (kParts & kCreditBehind) store(m.peer_credit, call);
  if constexpr (kParts & kHostFlag)
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %1};" ::"l"(m.flags + call % kFlags * 2),
                 "l"(uint64_t(call))
                 : "memory");
}

// Bounded: some seconds.
__global__ void stand(const volatile uint32_t* go) {
  for (uint32_t k = 0; *go == 0 && k < (1u << 23); ++k) __nanosleep(100);
}

struct Gpu {
  cudaStream_t stream;
  cudaEvent_t begin, end;
  Memory memory;
  uint64_t* credit;
  uint32_t calls = 0;
};

class Probe {
 public:
  Probe() {
    CUDA(cudaHostAlloc(&go_, sizeof *go_, cudaHostAllocMapped | cudaHostAllocPortable));
    for (int r = 0; r < 2; ++r) {
      Gpu& gpu = gpus_[r];
      CUDA(cudaSetDevice(r));
      CUDA(cudaDeviceEnablePeerAccess(1 - r, 0));
      CUDA(cudaStreamCreateWithFlags(&gpu.stream, cudaStreamNonBlocking));
      CUDA(cudaEventCreate(&gpu.begin));
      CUDA(cudaEventCreate(&gpu.end));
      gpu.credit = zeroed<uint64_t>(256);
      gpu.memory.slots = zeroed<uint4>(kSlots * kSlotPacks * sizeof(uint4));
      gpu.memory.input = zeroed<float2>(256);
      gpu.memory.output = zeroed<float2>(256);
      gpu.memory.turn = zeroed<uint64_t>(256);
      gpu.memory.ends = zeroed<uint64_t>(256);
      gpu.memory.others = zeroed<uint64_t>(kTurns * kTurnWords * sizeof(uint64_t));
      CUDA(cudaHostAlloc(&gpu.memory.flags, kFlags * 16, cudaHostAllocMapped | cudaHostAllocPortable));
      CUDA(cudaDeviceSynchronize());
    }
    for (int r = 0; r < 2; ++r) {
      gpus_[r].memory.peer_slots = gpus_[1 - r].memory.slots;
      gpus_[r].memory.peer_credit = gpus_[1 - r].credit;
    }
  }

  template <uint32_t kParts>
  void measure(const char* parts) {
    std::vector<double> times;
    for (int round = 0; round < kRounds; ++round) {
      *static_cast<volatile uint32_t*>(go_) = 0;
      for (int r = 0; r < 2; ++r) {
        Gpu& gpu = gpus_[r];
        CUDA(cudaSetDevice(r));
        stand<<<1, 1, 0, gpu.stream>>>(go_);
        CUDA(cudaEventRecord(gpu.begin, gpu.stream));
        for (int k = 0; k < kBurst; ++k) launch<kParts>(gpu);
        CUDA(cudaEventRecord(gpu.end, gpu.stream));
      }
      *static_cast<volatile uint32_t*>(go_) = 1;
      for (const Gpu& gpu : gpus_) CUDA(cudaStreamSynchronize(gpu.stream));
      float ms;
      CUDA(cudaEventElapsedTime(&ms, gpus_[0].begin, gpus_[0].end));
      times.push_back(1e3 * ms / kBurst);
    }
    std::sort(times.begin(), times.end());
    std::printf("%-64s %6.2f %6.2f\n", parts, times[kRounds / 2], times[0]);
    std::fflush(stdout);
  }

 private:
  template <uint32_t kParts>
  void launch(Gpu& gpu) {
    cudaLaunchAttribute early;
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = 1;
    config.blockDim = 64;
    config.stream = gpu.stream;
    config.attrs = &early;
    config.numAttrs = kParts & kNotEarly ? 0 : 1;
    CUDA(cudaLaunchKernelEx(&config, operation<kParts>, gpu.memory, argument_, ++gpu.calls));
  }

  std::array<Gpu, 2> gpus_;
  Argument argument_{};
  uint32_t* go_;
};

}  // namespace

int main() {
  int count = 0;
  CUDA(cudaGetDeviceCount(&count));
  if (count < 2) {
    std::printf("parts_probe needs two GPUs, here are %d\n", count);
    return 2;
  }
  Probe probe;
  std::printf("%-64s %6s %6s\n", "one-shot sum of 8 bytes, us; and with", "median", "least");
#define MEASURE(parts) probe.measure<(parts)>(#parts)
  MEASURE(0);
  MEASURE(kNotEarly);
  MEASURE(kTriggers);
  MEASURE(kArgument);
  MEASURE(kVotes);
  MEASURE(kTurn);
  MEASURE(kTurn | kEnds);
  MEASURE(kTogether);
  MEASURE(kSystemFence);
  MEASURE(kGpuFence);
  MEASURE(kCreditBefore);
  MEASURE(kCreditBefore | kGpuFence);
  MEASURE(kCreditBehind | kGpuFence);
  MEASURE(kOthers | kSystemFence);
  MEASURE(kHostFlag);
  MEASURE(kHostFlag | kSystemFence);
  MEASURE(kTurn | kEnds | kVotes | kCreditBefore | kSystemFence | kHostFlag);
  MEASURE(kTogether | kVotes | kCreditBehind | kGpuFence | kHostFlag);
}
