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
  const char* kind;  // what stands behind the wait: to_host, from_host, to_peer, within, kernels
  int streams;  // so many, the others behind an event of the first
  bool urgent;  // the priority of Starling's copies
  bool first;  // our stream is made before the program's
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
  return all;
}

cudaStream_t make_stream(bool urgent) {
  int least = 0, greatest = 0;
  CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  cudaStream_t stream;
  CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, urgent ? greatest + 1 : least));
  return stream;
}

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
  void* wait = nullptr;
  cudaDriverEntryPointQueryResult found;
  CUDA(cudaGetDriverEntryPointByVersion("cuStreamWaitValue64", &wait, 12000, cudaEnableDefault, &found));
  cudaStream_t ours = c.first ? make_stream(c.urgent) : nullptr;
  std::vector<cudaStream_t> streams(c.streams);
  for (cudaStream_t& stream : streams) stream = make_stream(false);
  if (ours == nullptr) ours = make_stream(c.urgent);
  // Each path was used once.
  CUDA(cudaMemcpyAsync(peer, local, 64, cudaMemcpyDefault, ours));
  CUDA(cudaMemcpyAsync(pinned, local, 64, cudaMemcpyDefault, streams[0]));
  nothing<<<1, 1, 0, streams[0]>>>();
  CUDA(cudaDeviceSynchronize());
  reinterpret_cast<CUresult (*)(CUstream, CUdeviceptr, cuuint64_t, unsigned int)>(wait)(
      streams[0], CUdeviceptr(word), 1, CU_STREAM_WAIT_VALUE_GEQ);
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
  std::atomic<bool> called{false};
  const double begin = now_ms();
  std::thread caller([&] {
    CUDA(cudaSetDevice(0));
    CUDA(cudaMemcpyAsync(peer, local, kBytes, cudaMemcpyDefault, ours));
    called = true;
  });
  while (!called && now_ms() - begin < kPatienceMs) {}
  const char* result = "the call **stands**";
  if (called) {
    while (cudaStreamQuery(ours) == cudaErrorNotReady && now_ms() - begin < kPatienceMs) {}
    result = cudaStreamQuery(ours) == cudaSuccess ? "passes" : "**stands**";
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
    std::printf("| %s | %d | %s | %s | ", all[k].kind, all[k].streams,
                all[k].urgent ? "of its own priority" : "ordinary", all[k].first ? "first" : "last");
    std::fflush(stdout);
    const std::string command = "timeout -s KILL 10 " + std::string(argv[0]) + " " + std::to_string(k);
    if (std::system(command.c_str()) != 0) std::printf(" (failed)");
    std::printf(" |\n");
  }
  return 0;
}
