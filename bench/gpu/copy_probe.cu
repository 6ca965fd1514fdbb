// Does a copy to a peer's GPU pass copies of the program that stand behind a wait, and does the driver take
// it while another thread launches into a stream that stands and is full? What the streams of copy engines
// are designed against (docs/design/0020-sm-free.md). Two GPUs.
//
// Each case is a process: so many streams of the program stand behind a wait value, each with a copy of one
// kind behind it, or with as many kernels as the driver takes; then 4 MB go to the peer by another stream, of
// the program's priority or of the one that Starling's copies have, made before the program's streams or
// after them.
//
//   copy_probe            all cases, as a table
//   copy_probe CASE       one
#include <cuda.h>
#include <cuda_runtime.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#define CUDA(call)                                                \
  do {                                                            \
    const cudaError_t status = (call);                            \
    if (status != cudaSuccess) {                                  \
      std::printf("%s: %s\n", #call, cudaGetErrorString(status)); \
      std::fflush(stdout);                                        \
      _exit(1);                                                   \
    }                                                             \
  } while (false)

namespace {

constexpr size_t kBytes = 4 << 20;
constexpr double kPatienceMs = 400;
constexpr int kMostLaunches = 100'000;

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct Case {
  const char* kind;  // what stands behind the wait: to_host, from_host, to_peer, within, kernels; module: a
                     // thread that loads one
  int streams;  // so many, the others behind an event of the first
  bool urgent;  // the priority of Starling's copies
  bool first;  // our stream is made before the program's
  bool apart = false;  // our stream is of a context of its own
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* kind : {"to_host", "from_host", "to_peer", "within"})
    for (const int streams : {1, 8})
      for (const bool urgent : {true, false})
        for (const bool first : {true, false}) {
          const bool usual = std::strcmp(kind, "to_host") == 0 || std::strcmp(kind, "to_peer") == 0;
          if (usual || (urgent && first)) all.push_back({kind, streams, urgent, first});
        }
  for (const bool urgent : {true, false}) all.push_back({"kernels", 1, urgent, true});
  for (const bool apart : {false, true}) all.push_back({"module", 1, true, true, apart});
  return all;
}

cudaStream_t make_stream(bool urgent) {
  int least = 0, greatest = 0;
  CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  cudaStream_t stream;
  CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, urgent ? greatest + 1 : least));
  return stream;
}

template <class F>
F driver_function(const char* name, unsigned version = 12000) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result;
  CUDA(cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result));
  return reinterpret_cast<F>(found);
}

std::atomic<int> loaded{0};

__global__ void nothing() {}

// Launches from a thread of its own until the driver keeps it; how many it took.
int fill(cudaStream_t stream) {
  static std::atomic<int> launched{0};
  std::thread([stream] {
    CUDA(cudaSetDevice(0));
    for (; launched < kMostLaunches; ++launched) nothing<<<1, 1, 0, stream>>>();
  }).detach();
  for (int seen = -1; seen != launched;) {
    seen = launched;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  return launched;
}

// As a library does with kernels that it needs for the first time. In each entry something else, so that
// none is known.
void load_modules() {
  const auto load = driver_function<CUresult (*)(CUmodule*, const void*)>("cuModuleLoadData");
  std::thread([load] {
    CUDA(cudaSetDevice(0));
    CUDA(cudaFree(nullptr));
    for (int k = 0; k < 1000; ++k) {
      const std::string number = std::to_string(k);
      const std::string text =
          ".version 8.0\n.target sm_90\n.address_size 64\n.visible .global .align 4 .b8 g" + number +
          "[65536];\n.visible .entry f" + number + "() { ret; }\n";
      CUmodule module;
      if (load(&module, text.c_str()) != CUDA_SUCCESS) std::printf("a module was refused ");
      ++loaded;
    }
  }).detach();
  for (int seen = -1; seen != loaded;) {
    seen = loaded;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

void run(const Case& c) {
  char *local, *peer, *pinned;
  unsigned long long* word;
  CUDA(cudaSetDevice(1));
  CUDA(cudaMalloc(&peer, 2 * kBytes));
  CUDA(cudaSetDevice(0));
  CUDA(cudaDeviceEnablePeerAccess(1, 0));
  CUDA(cudaMalloc(&local, 3 * kBytes));
  CUDA(cudaHostAlloc(&pinned, kBytes, cudaHostAllocMapped));
  CUDA(cudaHostAlloc(&word, sizeof *word, cudaHostAllocMapped));
  *word = 0;
  const auto wait =
      driver_function<CUresult (*)(CUstream, CUdeviceptr, cuuint64_t, unsigned int)>("cuStreamWaitValue64");
  CUcontext own = nullptr, primary = nullptr, other = nullptr;
  cudaStream_t ours = c.first ? make_stream(c.urgent) : nullptr;
  if (c.apart) {
    const auto retain = driver_function<CUresult (*)(CUcontext*, CUdevice)>("cuDevicePrimaryCtxRetain");
    const auto pop = driver_function<CUresult (*)(CUcontext*)>("cuCtxPopCurrent");
    const auto create = driver_function<CUresult (*)(CUcontext*, unsigned, CUdevice)>("cuCtxCreate", 3020);
    const auto make = driver_function<CUresult (*)(CUstream*, unsigned, int)>("cuStreamCreateWithPriority");
    retain(&primary, 0);
    retain(&other, 1);
    if (create(&own, 0, 0) != CUDA_SUCCESS) std::printf("no context ");
    if (make(&ours, CU_STREAM_NON_BLOCKING, -1) != CUDA_SUCCESS) std::printf("no stream ");
    const auto copy =
        driver_function<CUresult (*)(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream)>(
            "cuMemcpyPeerAsync");
    copy(CUdeviceptr(peer), other, CUdeviceptr(local), primary, 64, ours);
    const auto synchronize = driver_function<CUresult (*)(CUstream)>("cuStreamSynchronize");
    synchronize(ours);
    pop(nullptr);
  }
  std::vector<cudaStream_t> streams(c.streams);
  for (cudaStream_t& stream : streams) stream = make_stream(false);
  if (ours == nullptr) ours = make_stream(c.urgent);
  // Each path was used once.
  if (!c.apart) CUDA(cudaMemcpyAsync(peer, local, 64, cudaMemcpyDefault, ours));
  CUDA(cudaMemcpyAsync(pinned, local, 64, cudaMemcpyDefault, streams[0]));
  nothing<<<1, 1, 0, streams[0]>>>();
  CUDA(cudaDeviceSynchronize());
  wait(streams[0], CUdeviceptr(word), 1, CU_STREAM_WAIT_VALUE_GEQ);
  cudaEvent_t event;
  CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  CUDA(cudaEventRecord(event, streams[0]));
  for (const cudaStream_t stream : streams) {
    if (stream != streams[0]) CUDA(cudaStreamWaitEvent(stream, event, 0));
    const std::string kind = c.kind;
    if (kind == "to_host") CUDA(cudaMemcpyAsync(pinned, local, kBytes, cudaMemcpyDefault, stream));
    if (kind == "from_host") CUDA(cudaMemcpyAsync(local, pinned, kBytes, cudaMemcpyDefault, stream));
    if (kind == "to_peer") CUDA(cudaMemcpyAsync(peer + kBytes, local, kBytes, cudaMemcpyDefault, stream));
    if (kind == "within") CUDA(cudaMemcpyAsync(local + kBytes, local, kBytes, cudaMemcpyDefault, stream));
  }
  if (std::strcmp(c.kind, "kernels") == 0) std::printf("behind %d of them: ", fill(streams[0]));
  if (std::strcmp(c.kind, "module") == 0) {
    load_modules();
    std::printf("beside a thread that has loaded %d of 1000: ", loaded.load());
  }
  std::atomic<bool> called{false};
  const double begin = now_ms();
  std::thread caller([&] {
    CUDA(cudaSetDevice(0));
    if (c.apart) {
      const auto copy =
          driver_function<CUresult (*)(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream)>(
              "cuMemcpyPeerAsync");
      const auto push = driver_function<CUresult (*)(CUcontext)>("cuCtxPushCurrent");
      push(own);
      const CUresult result = copy(CUdeviceptr(peer), other, CUdeviceptr(local), primary, kBytes, ours);
      if (result != CUDA_SUCCESS) std::printf("refused (%d) ", int(result));
    } else {
      CUDA(cudaMemcpyAsync(peer, local, kBytes, cudaMemcpyDefault, ours));
    }
    called = true;
  });
  while (!called && now_ms() - begin < kPatienceMs) {}
  const char* result = "the call **stands**";
  if (called) {
    const auto query = driver_function<CUresult (*)(CUstream)>("cuStreamQuery");
    while (query(ours) == CUDA_ERROR_NOT_READY && now_ms() - begin < kPatienceMs) {}
    result = query(ours) == CUDA_SUCCESS ? "passes" : "**stands**";
  }
  std::printf("%s, %.2f ms", result, now_ms() - begin);
  std::fflush(stdout);
  _exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<Case> all = cases();
  if (argc > 1) run(all.at(size_t(std::atoi(argv[1]))));
  std::printf(
      "| what stands | streams | our stream | made | 4 MB to the peer |\n| --- | --- | --- | --- | --- "
      "|\n");
  for (size_t k = 0; k < all.size(); ++k) {
    std::printf("| %s | %d | %s%s | %s | ", all[k].kind, all[k].streams,
                all[k].urgent ? "of its own priority" : "ordinary",
                all[k].apart ? ", in a context of its own" : "", all[k].first ? "first" : "last");
    std::fflush(stdout);
    const std::string command = "timeout -s KILL 10 " + std::string(argv[0]) + " " + std::to_string(k);
    if (std::system(command.c_str()) != 0) std::printf(" (failed)");
    std::printf(" |\n");
  }
  return 0;
}
