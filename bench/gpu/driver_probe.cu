// Which calls of the driver stand behind another thread that stands in one? That thread copies to pageable
// memory from a stream that stands for 300 ms, the legacy one or one of the program's, or synchronizes with
// it. Prints Markdown rows: call | ms | ms | ms.
#include <cuda.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "probe.h"

namespace {

constexpr int kHeldMs = 300;
constexpr int kStartMs = 50;

using MemoryOperation = CUresult (*)(CUstream, CUdeviceptr, cuuint64_t, unsigned int);

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

template <class F>
F driver(const char* name) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  CUDA(cudaGetDriverEntryPointByVersion(name, &entry, 12000, cudaEnableDefault, &found));
  return reinterpret_cast<F>(entry);
}

__global__ void nothing() {}

struct Call {
  const char* name;
  std::function<void()> make;
};

struct Scene {
  uint64_t* word;
  char* memory;
  cudaStream_t held, other;
  MemoryOperation wait, write;
  uint64_t round = 0;
  std::vector<char> pageable = std::vector<char>(1 << 20);
};

// How long the call takes beside a thread that stands in `stand`.
double beside(Scene& scene, const std::function<void()>& stand, const std::function<void()>& make) {
  CUDA(cudaDeviceSynchronize());
  ++scene.round;
  scene.wait(scene.held, CUdeviceptr(scene.word), scene.round, CU_STREAM_WAIT_VALUE_GEQ);
  std::thread standing(stand);
  std::thread watcher([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(kHeldMs));
    *const_cast<volatile uint64_t*>(scene.word) = scene.round;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(kStartMs));
  const double begin = now_ms();
  make();
  const double taken = now_ms() - begin;
  standing.join();
  watcher.join();
  return taken;
}

}  // namespace

// long: one call of the driver after the other.
int main() {
  Scene s;
  CUDA(cudaHostAlloc(reinterpret_cast<void**>(&s.word), 4096, cudaHostAllocMapped));
  *s.word = 0;
  s.memory = zeroed<char>(1 << 20);
  int least, greatest;
  CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  CUDA(cudaStreamCreateWithFlags(&s.held, cudaStreamNonBlocking));
  CUDA(cudaStreamCreateWithPriority(&s.other, cudaStreamNonBlocking, greatest));
  s.wait = driver<MemoryOperation>("cuStreamWaitValue64");
  s.write = driver<MemoryOperation>("cuStreamWriteValue64");
  cudaEvent_t event;
  CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  CUDA(cudaEventRecord(event, s.other));
  nothing<<<1, 1, 0, s.other>>>();
  std::vector<void*> freed;
  for (int k = 0; k < 4; ++k) CUDA(cudaMalloc(&freed.emplace_back(), 1 << 20));
  char* pinned;
  CUDA(cudaHostAlloc(reinterpret_cast<void**>(&pinned), 4096, cudaHostAllocMapped));

  const std::vector<Call> calls = {
      {"nothing", [] {}},
      {"kernel launch, another stream", [&] { nothing<<<1, 1, 0, s.other>>>(); }},
      {"cuStreamWriteValue64, another stream",
       [&] { s.write(s.other, CUdeviceptr(s.word + 8), 1, CU_STREAM_WRITE_VALUE_DEFAULT); }},
      {"cudaMemcpyAsync from pinned memory, another stream",
       [&] { CUDA(cudaMemcpyAsync(s.memory, pinned, 64, cudaMemcpyHostToDevice, s.other)); }},
      {"cudaEventRecord, another stream", [&] { CUDA(cudaEventRecord(event, s.other)); }},
      {"cudaStreamWaitEvent, another stream", [&] { CUDA(cudaStreamWaitEvent(s.other, event)); }},
      {"cudaEventQuery", [&] { (void)cudaEventQuery(event); }},
      {"cudaStreamQuery, another stream", [&] { (void)cudaStreamQuery(s.other); }},
      {"cudaStreamSynchronize, another stream", [&] { CUDA(cudaStreamSynchronize(s.other)); }},
      {"cudaEventCreate and cudaEventDestroy",
       [] {
         cudaEvent_t fresh;
         CUDA(cudaEventCreateWithFlags(&fresh, cudaEventDisableTiming));
         CUDA(cudaEventDestroy(fresh));
       }},
      {"cudaStreamCreate",
       [] {
         cudaStream_t fresh;
         CUDA(cudaStreamCreateWithFlags(&fresh, cudaStreamNonBlocking));
       }},
      {"cudaMalloc, 256 MB",
       [] {
         void* fresh;
         CUDA(cudaMalloc(&fresh, 256 << 20));
       }},
      {"cudaIpcGetMemHandle",
       [&] {
         cudaIpcMemHandle_t handle;
         CUDA(cudaIpcGetMemHandle(&handle, s.memory));
       }},
      {"cudaHostAlloc, 1 MB",
       [] {
         void* fresh;
         CUDA(cudaHostAlloc(&fresh, 1 << 20, cudaHostAllocPortable | cudaHostAllocMapped));
       }},
      {"cudaPointerGetAttributes",
       [&] {
         cudaPointerAttributes attributes;
         CUDA(cudaPointerGetAttributes(&attributes, s.memory));
       }},
      {"cudaThreadExchangeStreamCaptureMode, twice",
       [] {
         cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
         CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
         CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
       }},
      {"cudaStreamGetCaptureInfo",
       [&] {
         cudaStreamCaptureStatus capturing;
         CUDA(cudaStreamGetCaptureInfo(s.other, &capturing));
       }},
  };
  std::printf(
      "| beside a thread that, ms | copies to pageable memory from the legacy stream | from another | "
      "synchronizes with it |\n| --- | ---: | ---: | ---: |\n");
  const cudaStream_t own = s.held;
  const auto synchronize = [&] { CUDA(cudaStreamSynchronize(s.held)); };
  const auto copy = [&] {
    CUDA(cudaMemcpyAsync(s.pageable.data(), s.memory, 8, cudaMemcpyDeviceToHost, s.held));
    synchronize();
  };
  for (const Call& call : calls) {
    s.held = nullptr;
    const double legacy = beside(s, copy, call.make);
    s.held = own;
    const double copying = beside(s, copy, call.make);
    const double waiting = beside(s, synchronize, call.make);
    std::printf("| %s | %.3f | %.3f | %.3f |\n", call.name, legacy, copying, waiting);
    std::fflush(stdout);
  }
  return 0;
}
