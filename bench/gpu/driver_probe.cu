// Which calls of the driver stand behind another thread that stands in one? That thread copies to pageable
// memory from a stream that stands for 300 ms, the legacy one or one of the program's, or synchronizes with
// it. Prints Markdown rows: call | ms | ms | ms.
//
// `driver_probe writes`: what of 63 streams comes beside a kernel that runs in another, when some of them
// share its hardware queue (CUDA_DEVICE_MAX_CONNECTIONS)? So whether a write's fence waits for kernels of
// other streams.
#include <cuda.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "probe.h"

namespace {

constexpr int kHeldMs = 300;
constexpr int kStartMs = 50;

constexpr int kStreams = 64;
constexpr double kPatienceMs = 100;

using MemoryOperations = CUresult (*)(CUstream, unsigned int, CUstreamBatchMemOpParams*, unsigned int);
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

__global__ void until(const volatile uint64_t* word) {
  while (*word == 0) {}
}

__global__ void set(volatile uint64_t* word) { *word = 1; }

struct Way {
  const char* name;
  std::function<void(cudaStream_t, uint64_t*)> make;  // the word becomes 1
};

// Each of the streams writes its word; those whose word has not come within patience stand behind the kernel
// in streams[0], which ends after the count.
void count_writes(const Way& way, std::vector<cudaStream_t>& streams, uint64_t* words) {
  uint64_t* go = words;
  std::memset(words, 0, 8 * (kStreams + 1));
  until<<<1, 1, 0, streams[0]>>>(go);
  int came = 0;
  double slowest_ms = 0;
  for (int k = 1; k < kStreams; ++k) {
    volatile uint64_t* word = words + k;
    const double begin = now_ms();
    way.make(streams[k], words + k);
    while (*word == 0 && now_ms() - begin < kPatienceMs) {}
    if (*word == 0) continue;
    ++came;
    slowest_ms = std::max(slowest_ms, now_ms() - begin);
  }
  *const_cast<volatile uint64_t*>(go) = 1;
  const double begin = now_ms();
  CUDA(cudaDeviceSynchronize());
  std::printf("| %s | %d of %d | %.3f | %.1f |\n", way.name, came, kStreams - 1, slowest_ms,
              now_ms() - begin);
  std::fflush(stdout);
}

void done(CUresult result) {
  if (result == CUDA_SUCCESS) return;
  std::printf("a memory operation was refused: %d\n", int(result));
  std::exit(1);
}

void writes() {
  uint64_t* words;
  CUDA(cudaHostAlloc(reinterpret_cast<void**>(&words), 4096, cudaHostAllocMapped));
  const auto wait = driver<MemoryOperation>("cuStreamWaitValue64");
  const auto write = driver<MemoryOperation>("cuStreamWriteValue64");
  const auto operate = driver<MemoryOperations>("cuStreamBatchMemOp");
  std::vector<cudaStream_t> streams(kStreams);
  for (cudaStream_t& stream : streams) CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const auto wait_and_write = [&](cudaStream_t s, uint64_t* word) {
    CUstreamBatchMemOpParams both[2] = {};
    both[0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
    both[0].waitValue.address = CUdeviceptr(words);
    both[0].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
    both[1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    both[1].writeValue.address = CUdeviceptr(word);
    both[1].writeValue.value64 = 1;
    both[1].writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
    done(operate(s, 2, both, 0));
  };
  const std::vector<Way> ways = {
      {"a kernel", [](cudaStream_t s, uint64_t* word) { set<<<1, 1, 0, s>>>(word); }},
      {"cuStreamWriteValue64",
       [&](cudaStream_t s, uint64_t* word) { done(write(s, CUdeviceptr(word), 1, 0)); }},
      {"cuStreamWaitValue64 that is met, cuStreamWriteValue64",
       [&](cudaStream_t s, uint64_t* word) {
         done(wait(s, CUdeviceptr(words), 0, CU_STREAM_WAIT_VALUE_GEQ));
         done(write(s, CUdeviceptr(word), 1, 0));
       }},
      {"both in one cuStreamBatchMemOp", wait_and_write},
      {"both in one cuStreamBatchMemOp, then a kernel",
       [&](cudaStream_t s, uint64_t* word) {
         wait_and_write(s, words + 100);
         set<<<1, 1, 0, s>>>(word);
       }},
  };
  set<<<1, 1, 0, streams[1]>>>(words + 200);  // what is lazy is over
  CUDA(cudaDeviceSynchronize());
  std::printf(
      "| beside a kernel that runs in another stream | came | the slowest, ms | the rest after it, ms |\n"
      "| --- | ---: | ---: | ---: |\n");
  for (const Way& way : ways) count_writes(way, streams, words);
}

}  // namespace

// long: one call of the driver after the other.
int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "writes") == 0) return writes(), 0;
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
