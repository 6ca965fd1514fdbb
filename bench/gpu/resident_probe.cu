// What blocks behind a resident kernel, and what does not: the facts that the GPU runtime is designed
// against. Each probe runs in a process of its own (a driver call that hangs must not take the others with
// it): the program starts itself again with the probe's name. Prints Markdown rows: probe | result.
// long: one probe a fact, read one by one.
#include <cuda.h>
#include <cuda_runtime.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#define CUDA(call)                                                       \
  do {                                                                   \
    const cudaError_t status_ = (call);                                  \
    if (status_ != cudaSuccess) {                                        \
      std::printf("error %s in %s", cudaGetErrorString(status_), #call); \
      std::fflush(stdout);                                               \
      _exit(3);                                                          \
    }                                                                    \
  } while (false)

namespace {

constexpr int kResidentMs = 300;

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

__global__ void resident(volatile int* stop, long long limit_ns) {
  long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (!*stop && now - start < limit_ns);
}
__global__ void nothing() {}
__global__ void set_flag(volatile int* flag) { *flag = 1; }
__global__ void deep(int depth, int* out) {
  int local[64];
  for (int i = 0; i < 64; ++i) local[i] = depth + i;
  for (int i = 0; i < 64; ++i) out[i] = local[(i * 7) % 64];
}

struct Scene {
  volatile int* stop;
  cudaStream_t stream;
  double started;
};

Scene occupy(int ms = kResidentMs) {
  Scene s;
  int* stop;
  CUDA(cudaHostAlloc(&stop, sizeof(int), cudaHostAllocMapped));
  *stop = 0;
  s.stop = stop;
  CUDA(cudaStreamCreateWithFlags(&s.stream, cudaStreamNonBlocking));
  nothing<<<1, 1, 0, s.stream>>>();
  set_flag<<<1, 1, 0, s.stream>>>(stop);
  cudaFuncAttributes attributes;
  CUDA(cudaFuncGetAttributes(&attributes, resident));
  CUDA(cudaFuncGetAttributes(&attributes, deep));
  CUDA(cudaStreamSynchronize(s.stream));
  *stop = 0;
  s.started = now_ms();
  resident<<<1, 32, 0, s.stream>>>(stop, (long long)ms * 1000000);
  CUDA(cudaGetLastError());
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return s;
}

template <class F>
void time_beside(F&& f) {
  Scene s = occupy();
  const double before = now_ms();
  f();
  const double took = now_ms() - before;
  const bool running = cudaStreamQuery(s.stream) == cudaErrorNotReady;
  std::printf("%s, %.3f ms", running ? "does not block" : "**blocks** until the kernel ends", took);
  *s.stop = 1;
}

// How many of the other streams' kernels run while one stream holds a resident kernel?
void streams_beside() {
  Scene s = occupy(1000);
  constexpr int kStreams = 40;
  std::vector<cudaStream_t> streams(kStreams);
  std::vector<int*> flags(kStreams);
  for (int k = 0; k < kStreams; ++k) {
    CUDA(cudaStreamCreateWithFlags(&streams[k], cudaStreamNonBlocking));
    CUDA(cudaHostAlloc(&flags[k], sizeof(int), cudaHostAllocMapped));
    *flags[k] = 0;
    set_flag<<<1, 1, 0, streams[k]>>>(flags[k]);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  int ran = 0;
  for (int k = 0; k < kStreams; ++k) ran += *(volatile int*)flags[k];
  std::printf("%d of %d streams run a kernel beside a resident one", ran, kStreams);
  *s.stop = 1;
}

// A wait value stands in one stream; do kernels of others run? And the one that would release it?
void wait_value_beside() {
  constexpr int kStreams = 40;
  CUDA(cudaFree(nullptr));
  unsigned int* word;
  CUDA(cudaMalloc(&word, 4));
  CUDA(cudaMemset(word, 0, 4));
  cudaStream_t waiting;
  CUDA(cudaStreamCreateWithFlags(&waiting, cudaStreamNonBlocking));
  cudaFuncAttributes attributes;
  CUDA(cudaFuncGetAttributes(&attributes, set_flag));
  CUDA(cudaDeviceSynchronize());
  std::vector<int*> flags(kStreams);
  std::vector<cudaStream_t> streams(kStreams);
  for (int k = 0; k < kStreams; ++k) {
    CUDA(cudaStreamCreateWithFlags(&streams[k], cudaStreamNonBlocking));
    CUDA(cudaHostAlloc(&flags[k], sizeof(int), cudaHostAllocMapped));
    *flags[k] = 0;
  }
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  CUDA(cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", &entry, 12000, cudaEnableDefault, &found));
  auto wait_value = reinterpret_cast<CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned int)>(entry);
  if (wait_value(waiting, (CUdeviceptr)word, 1, CU_STREAM_WAIT_VALUE_GEQ) != CUDA_SUCCESS) {
    std::printf("wait value not supported");
    return;
  }
  int ran = 0;
  for (int k = 0; k < kStreams; ++k) set_flag<<<1, 1, 0, streams[k]>>>(flags[k]);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  for (int k = 0; k < kStreams; ++k) ran += *(volatile int*)flags[k];
  std::printf("%d of %d streams run a kernel while one stream stands in a wait value", ran, kStreams);
  std::fflush(stdout);
  _exit(0);
}

// The same, but memory is taken while the stream waits.
template <class F>
void time_beside_wait(F&& f) {
  unsigned int* word;
  CUDA(cudaMalloc(&word, 4));
  CUDA(cudaMemset(word, 0, 4));
  cudaStream_t waiting;
  CUDA(cudaStreamCreateWithFlags(&waiting, cudaStreamNonBlocking));
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  CUDA(cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", &entry, 12000, cudaEnableDefault, &found));
  CUDA(cudaDeviceSynchronize());
  reinterpret_cast<CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned int)>(entry)(
      waiting, (CUdeviceptr)word, 1, CU_STREAM_WAIT_VALUE_GEQ);
  const double before = now_ms();
  f();
  std::printf("does not block, %.3f ms", now_ms() - before);
  std::fflush(stdout);
  _exit(0);
}
void host_alloc_beside_wait() {
  int* memory;
  time_beside_wait([&] { CUDA(cudaHostAlloc(&memory, 4096, cudaHostAllocMapped)); });
}
void stream_create_beside_wait() {
  cudaStream_t stream;
  time_beside_wait([&] { CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); });
}
void malloc_beside_wait() {
  int* memory;
  time_beside_wait([&] { CUDA(cudaMalloc(&memory, 4096)); });
}

// Which short copies pass while a stream stands? Each must end within 100 ms.
void copies_beside_wait() {
  unsigned int* word;
  char *memory, *pinned;
  CUDA(cudaMalloc(&word, 4));
  CUDA(cudaMemset(word, 0, 4));
  CUDA(cudaMalloc(&memory, 1 << 20));
  CUDA(cudaHostAlloc(&pinned, 1 << 20, cudaHostAllocMapped));
  std::vector<char> pageable(1 << 20);
  cudaStream_t waiting, stream;
  CUDA(cudaStreamCreateWithFlags(&waiting, cudaStreamNonBlocking));
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CUDA(cudaMemcpyAsync(memory, pinned, 64, cudaMemcpyHostToDevice, stream));
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  CUDA(cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", &entry, 12000, cudaEnableDefault, &found));
  CUDA(cudaDeviceSynchronize());
  reinterpret_cast<CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned int)>(entry)(
      waiting, (CUdeviceptr)word, 1, CU_STREAM_WAIT_VALUE_GEQ);
  auto passes = [&](const char* name) {
    const double start = now_ms();
    while (cudaStreamQuery(stream) == cudaErrorNotReady && now_ms() - start < 100) {}
    const bool ended = cudaStreamQuery(stream) == cudaSuccess;
    std::printf("%s: %s; ", name, ended ? "passes" : "**stands**");
    std::fflush(stdout);
    if (!ended) _exit(0);  // what comes behind stands too
  };
  CUDA(cudaMemcpyAsync(memory, pinned, 64, cudaMemcpyHostToDevice, stream));
  passes("64 B from pinned memory");
  CUDA(cudaMemcpyAsync(pinned, memory, 64, cudaMemcpyDeviceToHost, stream));
  passes("64 B to pinned memory");
  CUDA(cudaMemcpyAsync(memory, pinned, 1 << 20, cudaMemcpyHostToDevice, stream));
  passes("1 MB from pinned memory");
  CUDA(cudaMemcpyAsync(memory, pageable.data(), 64, cudaMemcpyHostToDevice, stream));
  passes("64 B from pageable memory");
  CUDA(cudaMemcpy2DAsync(memory, 64, pageable.data(), 64, 8, 16, cudaMemcpyHostToDevice, stream));
  passes("rows from pageable memory");
  CUDA(cudaMemsetAsync(memory, 0, 64, stream));
  passes("memset");
  _exit(0);
}

// One thread stands in a call that waits for a stream; can another launch, copy, query? A watcher releases
// the stream after 1 s, so that a call that waits for it ends late.
void launches_beside_call() {
  unsigned int* word;
  char *memory, *pinned;
  CUDA(cudaHostAlloc(&word, 4, cudaHostAllocMapped));
  CUDA(cudaMalloc(&memory, 1 << 20));
  CUDA(cudaHostAlloc(&pinned, 1 << 20, cudaHostAllocMapped));
  std::vector<char> pageable(1 << 20);
  cudaStream_t other, third;
  int *flag, least, greatest;
  CUDA(cudaHostAlloc(&flag, 4, cudaHostAllocMapped));
  CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  CUDA(cudaStreamCreateWithPriority(&other, cudaStreamNonBlocking, greatest));
  CUDA(cudaStreamCreateWithFlags(&third, cudaStreamNonBlocking));
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  CUDA(cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", &entry, 12000, cudaEnableDefault, &found));
  auto wait_value = reinterpret_cast<CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned int)>(entry);
  set_flag<<<1, 1, 0, other>>>(flag);
  CUDA(cudaDeviceSynchronize());
  const char* calls[] = {"cudaStreamSynchronize",
                         "copy to pageable memory (8 B)",
                         "copy to pageable memory (1 MB)",
                         "copy to pinned memory and synchronization",
                         "copy from pageable memory (1 MB)",
                         "cudaMemcpy"};
  unsigned int round = 0;
  for (int call = 0; call < 6; ++call) {
    ++round;
    *(volatile int*)flag = 0;
    wait_value(nullptr, (CUdeviceptr)word, round, CU_STREAM_WAIT_VALUE_GEQ);
    std::thread standing([&] {
      if (call == 0) cudaStreamSynchronize(nullptr);
      if (call == 1) cudaMemcpyAsync(pageable.data(), memory, 8, cudaMemcpyDeviceToHost, nullptr);
      if (call == 2) cudaMemcpyAsync(pageable.data(), memory, 1 << 20, cudaMemcpyDeviceToHost, nullptr);
      if (call == 3) cudaMemcpyAsync(pinned, memory, 8, cudaMemcpyDeviceToHost, nullptr);
      if (call == 4) cudaMemcpyAsync(memory, pageable.data(), 1 << 20, cudaMemcpyHostToDevice, nullptr);
      if (call == 5) cudaMemcpy(pageable.data(), memory, 8, cudaMemcpyDeviceToHost);
      cudaStreamSynchronize(nullptr);
    });
    std::thread watcher([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(1000));
      *(volatile unsigned int*)word = round;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const double start = now_ms();
    (void)cudaStreamQuery(other);
    const double queried = now_ms();
    set_flag<<<1, 1, 0, other>>>(flag);
    const double launched = now_ms();
    while (*(volatile int*)flag == 0 && now_ms() - launched < 1500) {}
    const double ran = now_ms();
    cudaMemcpyAsync(memory, pinned, 64, cudaMemcpyHostToDevice, third);
    const double copied = now_ms();
    cudaMemcpyAsync(memory, pageable.data(), 64, cudaMemcpyHostToDevice, third);
    const double copied_pageable = now_ms();
    std::printf(
        "\n  a thread in %s: query %.2f, launch %.2f, ran after %.2f, copy %.2f, pageable copy %.2f ms",
        calls[call], queried - start, launched - queried, ran - launched, copied - ran,
        copied_pageable - copied);
    std::fflush(stdout);
    standing.join();
    watcher.join();
  }
  _exit(0);
}

// A stream of one priority stands: how many of eight streams of another run a kernel?
void priorities_beside_wait() {
  int least, greatest;
  CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  unsigned int* word;
  CUDA(cudaHostAlloc(&word, 4, cudaHostAllocMapped));
  *word = 0;
  constexpr int kStreams = 8;
  int* flags;
  CUDA(cudaHostAlloc(&flags, kStreams * sizeof(int), cudaHostAllocMapped));
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  CUDA(cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", &entry, 12000, cudaEnableDefault, &found));
  auto wait_value = reinterpret_cast<CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned int)>(entry);
  std::vector<std::vector<cudaStream_t>> streams;
  std::vector<cudaStream_t> waiting;
  for (int p = greatest; p <= least; ++p) {
    waiting.emplace_back();
    CUDA(cudaStreamCreateWithPriority(&waiting.back(), cudaStreamNonBlocking, p));
    streams.emplace_back(kStreams);
    for (cudaStream_t& stream : streams.back())
      CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, p));
  }
  CUDA(cudaDeviceSynchronize());
  unsigned int round = 0;
  for (size_t standing = 0; standing < waiting.size(); ++standing)
    for (size_t running = 0; running < waiting.size(); ++running) {
      ++round;
      std::memset(flags, 0, kStreams * sizeof(int));
      wait_value(waiting[standing], (CUdeviceptr)word, round, CU_STREAM_WAIT_VALUE_GEQ);
      for (int k = 0; k < kStreams; ++k) set_flag<<<1, 1, 0, streams[running][k]>>>(flags + k);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      int ran = 0;
      for (int k = 0; k < kStreams; ++k) ran += ((volatile int*)flags)[k];
      if (ran != kStreams)
        std::printf("priority %d stands: %d of 8 of priority %d run; ", greatest + int(standing), ran,
                    greatest + int(running));
      *(volatile unsigned int*)word = round;
      CUDA(cudaDeviceSynchronize());
    }
  std::printf("priorities %d to %d looked at", greatest, least);
  std::fflush(stdout);
  _exit(0);
}

void launch_queue_depth() {
  Scene s = occupy(2000);
  cudaStream_t stream = s.stream;
  int launched = 0;
  double slowest = 0;
  for (; launched < 20000; ++launched) {
    const double before = now_ms();
    nothing<<<1, 1, 0, stream>>>();
    slowest = now_ms() - before;
    if (slowest > 20) break;
  }
  std::printf("a launch blocks after %d launches behind a resident kernel in one stream", launched);
  *s.stop = 1;
}

void host_registration() {
  const size_t bytes = size_t(64) << 20;
  void* memory = aligned_alloc(4096, bytes);
  std::memset(memory, 0, bytes);
  time_beside([&] { CUDA(cudaHostRegister(memory, bytes, cudaHostRegisterDefault)); });
}
void host_unregistration() {
  const size_t bytes = size_t(64) << 20;
  void* memory = aligned_alloc(4096, bytes);
  std::memset(memory, 0, bytes);
  CUDA(cudaHostRegister(memory, bytes, cudaHostRegisterDefault));
  time_beside([&] { CUDA(cudaHostUnregister(memory)); });
}
void graph(bool launch) {
  cudaStream_t stream;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cudaGraph_t graph;
  CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  for (int k = 0; k < 16; ++k) nothing<<<1, 1, 0, stream>>>();
  CUDA(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t exec;
  if (!launch) return time_beside([&] { CUDA(cudaGraphInstantiate(&exec, graph, 0)); });
  CUDA(cudaGraphInstantiate(&exec, graph, 0));
  time_beside([&] {
    CUDA(cudaGraphLaunch(exec, stream));
    CUDA(cudaStreamSynchronize(stream));
  });
}
void peer_access() {
  CUDA(cudaSetDevice(1));
  CUDA(cudaFree(nullptr));
  CUDA(cudaSetDevice(0));
  time_beside([&] { CUDA(cudaDeviceEnablePeerAccess(1, 0)); });
}
void free_mapped_by_peer() {
  CUDA(cudaSetDevice(1));
  CUDA(cudaDeviceEnablePeerAccess(0, 0));
  void* theirs;
  CUDA(cudaMalloc(&theirs, 1 << 20));
  CUDA(cudaSetDevice(0));
  CUDA(cudaDeviceEnablePeerAccess(1, 0));
  Scene s = occupy();
  CUDA(cudaSetDevice(1));
  const double before = now_ms();
  CUDA(cudaFree(theirs));
  const double took = now_ms() - before;
  CUDA(cudaSetDevice(0));
  const bool running = cudaStreamQuery(s.stream) == cudaErrorNotReady;
  std::printf("%s, %.3f ms (memory of GPU 1, kernel on GPU 0, peer access on)",
              running ? "does not block" : "**blocks** until the kernel ends", took);
  *s.stop = 1;
}
void stack_growth() {
  int* out;
  CUDA(cudaMalloc(&out, 256));
  time_beside([&] { CUDA(cudaDeviceSetLimit(cudaLimitStackSize, 16384)); });
}
void stream_priority_launch() {
  int least, greatest;
  CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  cudaStream_t stream;
  CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest));
  time_beside([&] {
    nothing<<<1, 1, 0, stream>>>();
    CUDA(cudaStreamSynchronize(stream));
  });
}

// Two processes: the child exports an allocation of GPU 1, the parent opens and closes it beside its kernel.
void ipc(bool close_too) {
  int sockets[2];
  socketpair(AF_UNIX, SOCK_STREAM, 0, sockets);
  const pid_t child = fork();
  if (child == 0) {
    int devices = 0;
    CUDA(cudaGetDeviceCount(&devices));
    CUDA(cudaSetDevice(devices > 1 ? 1 : 0));
    void* memory;
    CUDA(cudaMalloc(&memory, 4 << 20));
    cudaIpcMemHandle_t handle;
    CUDA(cudaIpcGetMemHandle(&handle, memory));
    (void)!write(sockets[1], &handle, sizeof handle);
    char byte;
    (void)!read(sockets[1], &byte, 1);
    _exit(0);
  }
  cudaIpcMemHandle_t handle;
  (void)!read(sockets[0], &handle, sizeof handle);
  CUDA(cudaSetDevice(0));
  void* mapped = nullptr;
  if (close_too) {
    CUDA(cudaFree(nullptr));
    CUDA(cudaIpcOpenMemHandle(&mapped, handle, cudaIpcMemLazyEnablePeerAccess));
    time_beside([&] { CUDA(cudaIpcCloseMemHandle(mapped)); });
  } else {
    time_beside([&] { CUDA(cudaIpcOpenMemHandle(&mapped, handle, cudaIpcMemLazyEnablePeerAccess)); });
  }
  (void)!write(sockets[0], "x", 1);
  waitpid(child, nullptr, 0);
}

// Reads a word of a peer's allocation until it is told to end, or for so long; seen[0]: the first value,
// seen[1]: the last, seen[2]: how many times another one was read.
__global__ void watch_word(const volatile unsigned* word, volatile int* stop, volatile unsigned* seen,
                           long long limit_ns) {
  long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  unsigned last = *word, changes = 0;
  seen[0] = last;
  do {
    const unsigned current = *word;
    seen[1] = current;
    seen[2] = changes += current != last;
    last = current;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (!*stop && now - start < limit_ns);
}

// Two processes: the owner frees memory that the other has opened and whose kernel reads it meanwhile, takes
// as much again and writes there. Does it wait for that kernel, and what does the kernel see?
void ipc_free() {
  constexpr size_t kBytes = 4 << 20;
  struct Freed {
    double free_ms, kept_ms;
    bool same_address;
  };
  int sockets[2];
  socketpair(AF_UNIX, SOCK_STREAM, 0, sockets);
  const pid_t owner = fork();
  if (owner == 0) {
    int devices = 0;
    CUDA(cudaGetDeviceCount(&devices));
    CUDA(cudaSetDevice(devices > 1 ? 1 : 0));
    void *memory, *kept, *again;
    CUDA(cudaMalloc(&memory, kBytes));
    CUDA(cudaMalloc(&kept, kBytes));  // nobody opens it: what freeing takes at all
    CUDA(cudaMemset(memory, 1, kBytes));
    CUDA(cudaDeviceSynchronize());
    cudaIpcMemHandle_t handle;
    CUDA(cudaIpcGetMemHandle(&handle, memory));
    (void)!write(sockets[1], &handle, sizeof handle);
    char byte;
    (void)!read(sockets[1], &byte, 1);
    Freed freed{};
    double begin = now_ms();
    CUDA(cudaFree(memory));
    freed.free_ms = now_ms() - begin;
    begin = now_ms();
    CUDA(cudaFree(kept));
    freed.kept_ms = now_ms() - begin;
    CUDA(cudaMalloc(&again, kBytes));
    freed.same_address = again == memory;
    CUDA(cudaMemset(again, 2, kBytes));
    CUDA(cudaDeviceSynchronize());
    (void)!write(sockets[1], &freed, sizeof freed);
    (void)!read(sockets[1], &byte, 1);
    _exit(0);
  }
  cudaIpcMemHandle_t handle;
  (void)!read(sockets[0], &handle, sizeof handle);
  CUDA(cudaSetDevice(0));
  void* mapped = nullptr;
  unsigned* seen;
  CUDA(cudaHostAlloc(&seen, 16, cudaHostAllocMapped));
  std::memset(seen, 0, 16);
  CUDA(cudaIpcOpenMemHandle(&mapped, handle, cudaIpcMemLazyEnablePeerAccess));
  Scene s = occupy();  // the kernel beside it reads as long as this one runs
  cudaStream_t stream;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  watch_word<<<1, 1, 0, stream>>>(static_cast<const unsigned*>(mapped), s.stop, seen,
                                  kResidentMs * 1000000LL);
  CUDA(cudaGetLastError());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  (void)!write(sockets[0], "f", 1);
  Freed freed{};
  const bool told = read(sockets[0], &freed, sizeof freed) == ssize_t(sizeof freed);
  const bool running = cudaStreamQuery(stream) == cudaErrorNotReady;
  *s.stop = 1;
  const cudaError_t ended = cudaStreamSynchronize(stream);
  if (!told) {
    std::printf("the owner ended");
    return;
  }
  std::printf(
      "%s, %.3f ms (memory that nobody opened: %.3f ms); the owner's next allocation is at %s address; the "
      "reader, "
      "which goes on (%s), saw %08x first, %08x last, %u changes",
      running ? "does not block" : "**blocks** until the reader's kernel ends", freed.free_ms, freed.kept_ms,
      freed.same_address ? "the same" : "another", cudaGetErrorString(ended), seen[0], seen[1], seen[2]);
  (void)!write(sockets[0], "x", 1);
  waitpid(owner, nullptr, 0);
}

// A stream of the legacy default stands for a second, and a thread of the program is in a call that waits for
// it: does the opening of a peer's allocation stand behind that call? What the stream waits for may need it.
void ipc_beside_call() {
  constexpr int kCalls = 4;
  const char* calls[kCalls] = {"cudaStreamSynchronize", "a copy to pageable memory (8 B)",
                               "a copy to pageable memory (1 MB)", "cudaMemcpy"};
  int sockets[2];
  socketpair(AF_UNIX, SOCK_STREAM, 0, sockets);
  const pid_t child = fork();
  cudaIpcMemHandle_t handles[kCalls];
  if (child == 0) {
    int devices = 0;
    CUDA(cudaGetDeviceCount(&devices));
    CUDA(cudaSetDevice(devices > 1 ? 1 : 0));
    for (cudaIpcMemHandle_t& handle : handles) {
      void* memory;
      CUDA(cudaMalloc(&memory, 4 << 20));
      CUDA(cudaIpcGetMemHandle(&handle, memory));
    }
    (void)!write(sockets[1], handles, sizeof handles);
    char byte;
    (void)!read(sockets[1], &byte, 1);
    _exit(0);
  }
  (void)!read(sockets[0], handles, sizeof handles);
  CUDA(cudaSetDevice(0));
  volatile unsigned int* word;
  char* memory;
  CUDA(cudaHostAlloc((void**)&word, 4, cudaHostAllocMapped));
  CUDA(cudaMalloc(&memory, 1 << 20));
  std::vector<char> pageable(1 << 20);
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  CUDA(cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", &entry, 12000, cudaEnableDefault, &found));
  auto wait_value = reinterpret_cast<CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned int)>(entry);
  for (int call = 0; call < kCalls; ++call) {
    *word = 0;
    wait_value(nullptr, (CUdeviceptr)word, 1, CU_STREAM_WAIT_VALUE_GEQ);
    std::thread standing([&] {
      if (call == 1) cudaMemcpyAsync(pageable.data(), memory, 8, cudaMemcpyDeviceToHost, nullptr);
      if (call == 2) cudaMemcpyAsync(pageable.data(), memory, 1 << 20, cudaMemcpyDeviceToHost, nullptr);
      if (call == 3) cudaMemcpy(pageable.data(), memory, 8, cudaMemcpyDeviceToHost);
      cudaStreamSynchronize(nullptr);
    });
    std::thread watcher([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(1000));
      *word = 1;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    void* mapped = nullptr;
    const double start = now_ms();
    CUDA(cudaIpcOpenMemHandle(&mapped, handles[call], cudaIpcMemLazyEnablePeerAccess));
    std::printf("\n  a thread in %s: opening takes %.2f of 900 ms", calls[call], now_ms() - start);
    std::fflush(stdout);
    standing.join();
    watcher.join();
  }
  (void)!write(sockets[0], "x", 1);
  waitpid(child, nullptr, 0);
  _exit(0);
}

struct Probe {
  const char* name;
  const char* text;
  void (*run)();
};
constexpr Probe kProbes[] = {
    {"streams", "kernels of other streams", streams_beside},
    {"wait_value", "kernels beside a waiting stream", wait_value_beside},
    {"wait_host_alloc", "cudaHostAlloc beside a waiting stream", host_alloc_beside_wait},
    {"wait_stream", "cudaStreamCreate beside a waiting stream", stream_create_beside_wait},
    {"wait_malloc", "cudaMalloc beside a waiting stream", malloc_beside_wait},
    {"copies", "copies beside a waiting stream", copies_beside_wait},
    {"calls", "launches beside a thread that waits for a stream", launches_beside_call},
    {"priorities", "streams of other priorities beside a waiting one", priorities_beside_wait},
    {"queue", "launch queue", launch_queue_depth},
    {"register", "cudaHostRegister, 64 MB", host_registration},
    {"unregister", "cudaHostUnregister, 64 MB", host_unregistration},
    {"instantiate", "cudaGraphInstantiate", [] { graph(false); }},
    {"graph", "cudaGraphLaunch and its synchronization", [] { graph(true); }},
    {"peer", "cudaDeviceEnablePeerAccess", peer_access},
    {"free_peer", "cudaFree of memory that a peer maps", free_mapped_by_peer},
    {"ipc_open", "cudaIpcOpenMemHandle", [] { ipc(false); }},
    {"ipc_close", "cudaIpcCloseMemHandle", [] { ipc(true); }},
    {"ipc_free", "cudaFree of memory that another process has opened, and reads", ipc_free},
    {"ipc_call", "cudaIpcOpenMemHandle beside a thread that waits for a stream", ipc_beside_call},
    {"stack", "cudaDeviceSetLimit(stack size)", stack_growth},
    {"priority", "launch on a high-priority stream", stream_priority_launch},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) {
    for (const Probe& probe : kProbes)
      if (std::strcmp(argv[1], probe.name) == 0) probe.run();
    std::fflush(stdout);
    _exit(0);  // no tear-down: it would wait for the kernel
  }
  for (const char* connections : {"1", "8", "32"}) {
    std::printf("\nCUDA_DEVICE_MAX_CONNECTIONS=%s\n\n| beside a resident kernel | result |\n| --- | --- |\n",
                connections);
    for (const Probe& probe : kProbes) {
      const bool always = std::strcmp(connections, "8") == 0;
      const bool queues =
          std::strcmp(probe.name, "streams") == 0 || std::strcmp(probe.name, "wait_value") == 0 ||
          std::strcmp(probe.name, "copies") == 0 || std::strcmp(probe.name, "priorities") == 0;
      if (!always && !queues) continue;  // only these depend on the number of hardware queues
      std::printf("| %s | ", probe.text);
      std::fflush(stdout);
      const std::string command =
          "CUDA_MODULE_LOADING=EAGER CUDA_DEVICE_MAX_CONNECTIONS=" + std::string(connections) +
          " timeout -s KILL 20 " + argv[0] + " " + probe.name;
      if (std::system(command.c_str()) != 0) std::printf(" (did not return within 20 s)");
      std::printf(" |\n");
    }
  }
  return 0;
}
