// What the end of a kernel waits for: kernels in a row, each of which stores something last, by how they come
// to the GPU. A start kernel tells its host that the operation is complete, by a word in the host's memory
// (docs/design/0007-start-as-a-kernel.md); here is what that costs the kernel behind it. One GPU; two, for
// what is stored to a peer.
//
//   end_probe        a table: us from one kernel to the next beside what each of them computes, the median of
//   nine
//                    rounds of 100. stood: all are in the stream before the first begins; live: they are
//                    launched meanwhile, sooner than the GPU needs them; graph: in graphs of 20
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "probe.h"

namespace {

constexpr int kRounds = 9, kBurst = 100, kGraphKernels = 20;
constexpr uint32_t kSpinNs = 12000;  // longer than two launches take their caller

enum class Last : uint32_t {
  kNothing,
  kHere,
  kHost,
  kHostEarlier,
  kHostByAtomic,
  kFencedHost,
  kPeer,
  kPeerAndHost
};

__device__ void store(uint64_t* to, uint64_t value) {
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %1};" ::"l"(to), "l"(value) : "memory");
}
__device__ void spin(uint32_t ns) {
  for (const uint64_t begin = now(); now() - begin < ns;) {}
}

__global__ void __launch_bounds__(512, 1) computes(const __grid_constant__ Words words, Last last) {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  if (threadIdx.x != 0 || blockIdx.x != 0) return;
  constexpr uint32_t kEarlier = 3000;
  const uint64_t value = now();
  spin(last == Last::kHostEarlier ? kSpinNs - kEarlier : kSpinNs);
  switch (last) {
    case Last::kNothing: break;
    case Last::kHere: store(words.here, value); break;
    case Last::kHost: store(words.host, value); break;
    case Last::kHostEarlier:
      store(words.host, value);
      spin(kEarlier);
      break;
    case Last::kHostByAtomic:
      asm volatile("red.relaxed.sys.global.max.u64 [%0], %1;" ::"l"(words.host), "l"(value) : "memory");
      break;
    case Last::kFencedHost:
      store(words.here, value);
      asm volatile("fence.acq_rel.sys;" ::: "memory");
      store(words.host, value);
      break;
    case Last::kPeer: store(words.peer, value); break;
    case Last::kPeerAndHost:
      store(words.peer, value);
      store(words.host, value);
      break;
  }
}

__global__ void reads(const uint64_t* word, uint64_t* to) {
  if (*word == 251) *to = 1;
}

// Bounded: some seconds.
__global__ void stands(const volatile uint32_t* go) {
  for (uint32_t k = 0; *go == 0 && k < (1u << 23); ++k) __nanosleep(100);
}

class Probe {
 public:
  Probe() {
    int devices = 0;
    CUDA(cudaGetDeviceCount(&devices));
    CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    CUDA(cudaEventCreate(&begin_));
    CUDA(cudaEventCreate(&end_));
    CUDA(cudaHostAlloc(&go_, sizeof *go_, cudaHostAllocMapped));
    CUDA(cudaHostAlloc(&words_.host, 128, cudaHostAllocMapped));
    words_.here = zeroed<uint64_t>(128);
    if (devices > 1) {
      CUDA(cudaSetDevice(1));
      words_.peer = zeroed<uint64_t>(128);
      CUDA(cudaSetDevice(0));
      CUDA(cudaDeviceEnablePeerAccess(1, 0));
    }
  }

  void measure(const char* what, Last last) {
    if (words_.peer == nullptr && (last == Last::kPeer || last == Last::kPeerAndHost)) return;
    for (const bool early : {true, false})
      for (const bool read : {false, true}) {
        std::printf("| %s | %s | %s |", what, early ? "early" : "in turn",
                    read ? "one that reads" : "its like");
        for (const bool live : {false, true})
          std::printf(" %.2f |", in_a_stream(last, early, read, live) - kSpinNs / 1e3);
        std::printf(" %.2f |\n", in_graphs(last, early, read) - kSpinNs / 1e3);
        std::fflush(stdout);
      }
  }

 private:
  void launch(Last last, bool early, bool read) {
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = 32;
    config.blockDim = 512;
    config.stream = stream_;
    config.attrs = &attribute;
    config.numAttrs = early ? 1 : 0;
    CUDA(cudaLaunchKernelEx(&config, computes, words_, last));
    if (read) reads<<<1, 1, 0, stream_>>>(words_.here, words_.here + 8);
  }

  double in_a_stream(Last last, bool early, bool read, bool live) {
    return median([&] {
      *static_cast<volatile uint32_t*>(go_) = live;
      stands<<<1, 1, 0, stream_>>>(go_);
      CUDA(cudaEventRecord(begin_, stream_));
      for (int k = 0; k < kBurst; ++k) launch(last, early, read);
      CUDA(cudaEventRecord(end_, stream_));
      *static_cast<volatile uint32_t*>(go_) = 1;
      return kBurst;
    });
  }

  double in_graphs(Last last, bool early, bool read) {
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed));
    for (int k = 0; k < kGraphKernels; ++k) launch(last, early, read);
    CUDA(cudaStreamEndCapture(stream_, &graph));
    CUDA(cudaGraphInstantiate(&ready, graph, 0));
    const double us = median([&] {
      CUDA(cudaEventRecord(begin_, stream_));
      for (int k = 0; k < kBurst / kGraphKernels; ++k) CUDA(cudaGraphLaunch(ready, stream_));
      CUDA(cudaEventRecord(end_, stream_));
      return kBurst;
    });
    CUDA(cudaGraphExecDestroy(ready));
    CUDA(cudaGraphDestroy(graph));
    return us;
  }

  // Of what a round's kernels take, each.
  template <class Round>
  double median(Round&& round) {
    std::vector<double> us;
    for (int k = 0; k < kRounds; ++k) {
      const int kernels = round();
      CUDA(cudaStreamSynchronize(stream_));
      float ms;
      CUDA(cudaEventElapsedTime(&ms, begin_, end_));
      us.push_back(1e3 * ms / kernels);
    }
    std::sort(us.begin(), us.end());
    return us[us.size() / 2];
  }

  cudaStream_t stream_;
  cudaEvent_t begin_, end_;
  uint32_t* go_;
  Words words_{};
};

}  // namespace

int main() {
  Probe probe;
  std::printf("| what it stores last | launched | behind it | stood | live | graph |\n");
  std::printf("| --- | --- | --- | ---: | ---: | ---: |\n");
  probe.measure("nothing", Last::kNothing);
  probe.measure("a word in its own memory", Last::kHere);
  probe.measure("a word in the host's memory", Last::kHost);
  probe.measure("a word in the host's memory, 3 us before its end", Last::kHostEarlier);
  probe.measure("an atomic in the host's memory", Last::kHostByAtomic);
  probe.measure("a fence of the system, and a word in the host's memory", Last::kFencedHost);
  probe.measure("a word in a peer's memory", Last::kPeer);
  probe.measure("words in a peer's memory and the host's", Last::kPeerAndHost);
  return 0;
}
