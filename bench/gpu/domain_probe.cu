// What memory synchronization domains change (CUDA C++ Programming Guide, "Memory Synchronization Domains"):
// a kernel's end waits for what kernels of its domain write, so those of a program's for what ours do. Two
// GPUs; with one, what is stored to a peer is left out. Tables, each for both kernels in one domain, and for
// ours in that of remote traffic:
//
//   rows     us from one of our kernels to the next beside the 12 us that each computes, a kernel of the
//            program that reads between them; median of nine rounds of 100
//   fences   us of a store and a fence of the system, beside a kernel of the program; median of 2,000
//   ends     us from one of the program's kernels to the next beside the 5 us that each computes, beside
//            ours; median of nine rounds of 100
//   seen     words that the program's kernel, behind a stream's wait, read older than ours had written them
//            before the word that was waited for, with a fence of the GPU between, and without having ended;
//            in 2,000 rounds
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "probe.h"

namespace {

constexpr int kRounds = 9, kBurst = 100, kFences = 2000;
constexpr uint32_t kSpinNs = 12000, kShortNs = 5000;
constexpr size_t kWritten = size_t(1) << 30;

enum class Where : uint32_t { kNowhere, kHere, kHost, kPeer, kPeerAndHost };

__device__ void store(uint64_t* to, uint64_t value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}
__device__ void store_to(const Words& words, Where where, uint64_t value) {
  if (where == Where::kHere) store(words.here, value);
  if (where == Where::kPeer || where == Where::kPeerAndHost) store(words.peer, value);
  if (where == Where::kHost || where == Where::kPeerAndHost) store(words.host, value);
}

__global__ void __launch_bounds__(512, 1)
    computes(const __grid_constant__ Words words, Where where, uint32_t ns) {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  if (threadIdx.x != 0 || blockIdx.x != 0) return;
  for (const uint64_t begin = now(); now() - begin < ns;) {}
  store_to(words, where, now());
}

__global__ void reads(const uint64_t* word, uint64_t* to) {
  if (*word == 251) *to = 1;
}

// Until it is told to stop, and four seconds at most.
__global__ void writes(uint4* to, size_t packs, const volatile uint32_t* stop) {
  const uint64_t begin = now();
  while (*stop == 0 && now() - begin < 4000000000ull)
    for (size_t k = blockIdx.x * size_t(blockDim.x) + threadIdx.x; k < packs;
         k += gridDim.x * size_t(blockDim.x))
      to[k] = uint4{1, 2, 3, 4};
}

__global__ void fences(const __grid_constant__ Words words, Where where, uint32_t* cycles) {
  for (int k = 0; k < kFences; ++k) {
    const long long begin = clock64();
    store_to(words, where, uint64_t(k));
    asm volatile("fence.acq_rel.sys;" ::: "memory");
    cycles[k] = uint32_t(clock64() - begin);
  }
}

// As a start kernel tells of its operation (device/handover.h): all blocks write, the last one stores the
// word, and all stay a while, so that no end of theirs is between.
__global__ void tells(uint64_t* data, size_t count, uint64_t* arrived, uint64_t* told, uint64_t round) {
  for (size_t k = blockIdx.x * size_t(blockDim.x) + threadIdx.x; k < count;
       k += gridDim.x * size_t(blockDim.x))
    data[k] = round;
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    uint64_t before;
    asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;"
                 : "=l"(before)
                 : "l"(arrived), "l"(uint64_t(1))
                 : "memory");
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    if (before + 1 == round * gridDim.x) store(told, round);
    for (const uint64_t begin = now(); now() - begin < 40000;) {}
  }
  __syncthreads();
}

__global__ void compares(const uint64_t* data, size_t count, uint64_t round, unsigned long long* older) {
  for (size_t k = blockIdx.x * size_t(blockDim.x) + threadIdx.x; k < count;
       k += gridDim.x * size_t(blockDim.x))
    if (data[k] < round) atomicAdd(older, 1);
}

using WaitValue = CUresult (*)(CUstream, CUdeviceptr, cuuint64_t, unsigned int);

WaitValue wait_value() {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  CUDA(cudaGetDriverEntryPointByVersion("cuStreamWaitValue64", &entry, 12000, cudaEnableDefault, &found));
  return reinterpret_cast<WaitValue>(entry);
}

class Probe {
 public:
  Probe() {
    CUDA(cudaGetDeviceCount(&devices_));
    int khz;
    CUDA(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0));
    mhz_ = khz / 1000.0;
    for (cudaStream_t* stream : {&stream_, &beside_})
      CUDA(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    CUDA(cudaEventCreate(&begin_));
    CUDA(cudaEventCreate(&end_));
    CUDA(cudaHostAlloc(&stop_, sizeof *stop_, cudaHostAllocMapped));
    CUDA(cudaHostAlloc(&words_.host, 128, cudaHostAllocMapped));
    words_.here = zeroed<uint64_t>(128);
    cycles_ = zeroed<uint32_t>(kFences * sizeof(uint32_t));
    written_ = zeroed<uint4>(kWritten);
    if (devices_ < 2) return;
    CUDA(cudaSetDevice(1));
    words_.peer = zeroed<uint64_t>(128);
    put_ = zeroed<uint4>(kWritten);
    CUDA(cudaSetDevice(0));
    CUDA(cudaDeviceEnablePeerAccess(1, 0));
  }

  void rows() {
    std::printf("| rows: what ours stores last | one domain | two |\n| --- | ---: | ---: |\n");
    for (const auto& [name, where] : all({{"nothing", Where::kNowhere},
                                          {"a word of the host's", Where::kHost},
                                          {"a word of a peer's", Where::kPeer},
                                          {"both", Where::kPeerAndHost}})) {
      std::printf("| %s |", name);
      for (const bool remote : {false, true})
        std::printf(" %.2f |", row([&] {
                                 launch(stream_, remote, computes, 32, 512, words_, where, kSpinNs);
                                 reads<<<1, 1, 0, stream_>>>(words_.here, words_.here + 8);
                               }) - kSpinNs / 1e3);
      std::printf("\n");
    }
  }

  void fence_times() {
    std::printf(
        "\n| fences: ours behind a store to | beside one that writes | one domain | two |\n| --- | --- | "
        "---: | ---: |\n");
    for (const auto& [name, where] : all({{"its own memory", Where::kHere},
                                          {"a word of the host's", Where::kHost},
                                          {"a word of a peer's", Where::kPeer}}))
      for (const auto& [writer, to] : writers()) {
        std::printf("| %s | %s |", name, writer);
        for (const bool remote : {false, true}) {
          beside(to, false, [&] { launch(stream_, remote, fences, 1, 1, words_, where, cycles_); });
          std::vector<uint32_t> cycles(kFences);
          CUDA(cudaMemcpy(cycles.data(), cycles_, kFences * sizeof(uint32_t), cudaMemcpyDeviceToHost));
          std::sort(cycles.begin(), cycles.end());
          std::printf(" %.2f |", cycles[kFences / 2] / mhz_);
        }
        std::printf("\n");
      }
  }

  void ends() {
    std::printf("\n| ends: beside ours, which writes | one domain | two |\n| --- | ---: | ---: |\n");
    for (const auto& [writer, to] : writers()) {
      std::printf("| %s |", writer);
      for (const bool remote : {false, true}) {
        double us = 0;
        beside(to, remote,
               [&] { us = row([&] { computes<<<32, 512, 0, stream_>>>(words_, Where::kHere, kShortNs); }); });
        std::printf(" %.2f |", us - kShortNs / 1e3);
      }
      std::printf("\n");
    }
  }

  void seen() {
    const WaitValue wait = wait_value();
    std::printf("\n| seen: words that ours wrote | older in one domain | two |\n| --- | ---: | ---: |\n");
    for (const size_t count : {size_t(512), size_t(1) << 20}) {
      std::printf("| %zu |", count);
      for (const bool remote : {false, true}) std::printf(" %llu |", older_words(wait, count, remote));
      std::printf("\n");
    }
  }

 private:
  unsigned long long older_words(WaitValue wait, size_t count, bool remote) {
    auto* const data = zeroed<uint64_t>(count * sizeof(uint64_t));
    auto* const words = zeroed<uint64_t>(48 * sizeof(uint64_t));
    uint64_t *const arrived = words, *const told = words + 16;
    auto* const older = reinterpret_cast<unsigned long long*>(words + 32);
    for (uint64_t round = 1; round <= 2000; ++round) {
      launch(beside_, remote, tells, 32, 512, data, count, arrived, told, round);
      if (wait(stream_, reinterpret_cast<CUdeviceptr>(told), round, CU_STREAM_WAIT_VALUE_GEQ) != CUDA_SUCCESS)
        std::printf("cuStreamWaitValue64 failed\n");
      compares<<<32, 512, 0, stream_>>>(data, count, round, older);
      CUDA(cudaStreamSynchronize(stream_));
    }
    CUDA(cudaStreamSynchronize(beside_));
    unsigned long long found;
    CUDA(cudaMemcpy(&found, older, sizeof found, cudaMemcpyDeviceToHost));
    CUDA(cudaFree(data));
    CUDA(cudaFree(words));
    return found;
  }

  struct Named {
    const char* name;
    Where where;
  };
  struct Writer {
    const char* name;
    uint4* to;
  };

  std::vector<Named> all(std::vector<Named> named) const {
    if (devices_ < 2)
      std::erase_if(named,
                    [](const Named& n) { return n.where == Where::kPeer || n.where == Where::kPeerAndHost; });
    return named;
  }
  std::vector<Writer> writers() const {
    std::vector<Writer> found{{"nothing", nullptr}, {"in the GPU's memory", written_}};
    if (devices_ > 1) found.push_back({"in a peer's", put_});
    return found;
  }

  template <class Kernel, class... Arguments>
  static void launch(cudaStream_t stream, bool remote, Kernel kernel, int blocks, int threads,
                     Arguments... arguments) {
    cudaLaunchAttribute attributes[2];
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeMemSyncDomain;
    attributes[1].val.memSyncDomain = remote ? cudaLaunchMemSyncDomainRemote : cudaLaunchMemSyncDomainDefault;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(uint32_t(blocks));
    config.blockDim = dim3(uint32_t(threads));
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = 2;
    CUDA(cudaLaunchKernelEx(&config, kernel, arguments...));
  }

  // While a kernel writes there, of the domain of remote traffic or not.
  template <class Action>
  void beside(uint4* to, bool remote, Action&& action) {
    *static_cast<volatile uint32_t*>(stop_) = 0;
    if (to != nullptr) launch(beside_, remote, writes, 32, 512, to, kWritten / sizeof(uint4), stop_);
    action();
    CUDA(cudaStreamSynchronize(stream_));
    *static_cast<volatile uint32_t*>(stop_) = 1;
    CUDA(cudaStreamSynchronize(beside_));
  }

  template <class Action>
  double row(Action&& action) {
    std::vector<double> us;
    for (int k = 0; k < kRounds; ++k) {
      CUDA(cudaEventRecord(begin_, stream_));
      for (int n = 0; n < kBurst; ++n) action();
      CUDA(cudaEventRecord(end_, stream_));
      CUDA(cudaStreamSynchronize(stream_));
      float ms;
      CUDA(cudaEventElapsedTime(&ms, begin_, end_));
      us.push_back(1e3 * ms / kBurst);
    }
    std::sort(us.begin(), us.end());
    return us[us.size() / 2];
  }

  int devices_ = 0;
  double mhz_ = 0;
  cudaStream_t stream_, beside_;
  cudaEvent_t begin_, end_;
  uint32_t *stop_, *cycles_;
  uint4 *written_, *put_ = nullptr;
  Words words_{};
};

}  // namespace

int main() {
  Probe probe;
  probe.rows();
  probe.fence_times();
  probe.ends();
  probe.seen();
  return 0;
}
