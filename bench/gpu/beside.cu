// What runs beside collectives in benchmarks and tests, as a library for Python (starling.bench.beside loads
// it): kernels that take a GPU's multiprocessors, its L2 cache or its issue slots, and calls of the runtime
// that synchronize. Every function takes the GPU's number and returns the runtime's error, 0 for none.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdint>
#include <new>
#include <thread>

namespace {

constexpr int kThreads = 256;

#define RETURN_IF_FAILED(call) \
  if (const cudaError_t status = (call); status != cudaSuccess) return int(status)

__device__ uint64_t now_ns() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

// One block a multiprocessor, which it fills by its shared memory. Says that it is there and stays until
// `stop`, or until the limit: a program that dies must not leave a GPU occupied.
__global__ void occupy_kernel(volatile unsigned* arrived, const volatile unsigned* stop, uint64_t limit_ns) {
  if (threadIdx.x != 0) return;
  const uint64_t begin = now_ns();
  arrived[blockIdx.x] = 1;
  while (*stop == 0 && now_ns() - begin < limit_ns) __nanosleep(1000);
}

// One that does no more than look for `stop`, by one of its threads.
__global__ void look_kernel(const volatile unsigned* stop, uint64_t limit_ns) {
  const uint64_t begin = now_ns();
  if (threadIdx.x == 0)
    while (*stop == 0 && now_ns() - begin < limit_ns) __nanosleep(500);
  __syncthreads();
}

// Reads `count` packs again and again, which fit the L2 cache and no L1.
__global__ void l2_kernel(const uint4* data, size_t count, int passes, unsigned* sink) {
  unsigned sum = 0;
  const size_t stride = size_t(gridDim.x) * blockDim.x;
  for (int pass = 0; pass < passes; ++pass)
    for (size_t k = blockIdx.x * size_t(blockDim.x) + threadIdx.x; k < count; k += stride) {
      const uint4 pack = __ldcg(data + k);
      sum += pack.x ^ pack.y ^ pack.z ^ pack.w;
    }
  if (sum == 0x12345678u) *sink = sum;
}

// Independent chains of multiply-adds: every scheduler issues in every cycle, and no memory is touched.
__global__ void issue_kernel(long rounds, float* sink) {
  float a = threadIdx.x, b = a + 1, c = a + 2, d = a + 3;
  const float factor = 0.999f, add = 0.001f;
  for (long k = 0; k < rounds; ++k) {
#pragma unroll
    for (int u = 0; u < 16; ++u) {
      a = fmaf(a, factor, add);
      b = fmaf(b, factor, add);
      c = fmaf(c, factor, add);
      d = fmaf(d, factor, add);
    }
  }
  if (a + b + c + d == 1.25f) *sink = a;
}

// One of a program's small kernels: an element-wise step.
__global__ void step_kernel(float4* data, size_t count) {
  for (size_t k = blockIdx.x * size_t(blockDim.x) + threadIdx.x; k < count;
       k += size_t(gridDim.x) * blockDim.x) {
    float4 pack = data[k];
    pack.x += 1, pack.y += 1, pack.z += 1, pack.w += 1;
    data[k] = pack;
  }
}

struct Occupation {
  cudaStream_t stream = nullptr;
  unsigned* words = nullptr;  // pinned: `stop`, then one for each block
  int blocks = 0;
};

}  // namespace

extern "C" {

int beside_multiprocessors(int device, int* count) {
  return int(cudaDeviceGetAttribute(count, cudaDevAttrMultiProcessorCount, device));
}

// Occupies all multiprocessors but `free`, for `limit_s` at most. Returns when they are taken; 600
// (cudaErrorNotReady) if they are not within 5 s. *occupation goes to beside_release().
int beside_occupy(int device, int free, double limit_s, void** occupation) {
  RETURN_IF_FAILED(cudaSetDevice(device));
  int processors = 0, shared_bytes = 0;
  RETURN_IF_FAILED(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  RETURN_IF_FAILED(cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  RETURN_IF_FAILED(
      cudaFuncSetAttribute(occupy_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  auto* made = new (std::nothrow) Occupation{nullptr, nullptr, processors - free};
  if (made == nullptr) return int(cudaErrorMemoryAllocation);
  *occupation = made;
  RETURN_IF_FAILED(cudaStreamCreateWithFlags(&made->stream, cudaStreamNonBlocking));
  const size_t bytes = sizeof(unsigned) * size_t(made->blocks + 1);
  RETURN_IF_FAILED(cudaHostAlloc(&made->words, bytes, cudaHostAllocMapped));
  volatile unsigned* const words = made->words;
  for (int k = 0; k <= made->blocks; ++k) words[k] = 0;
  occupy_kernel<<<made->blocks, 32, shared_bytes, made->stream>>>(made->words + 1, made->words,
                                                                  uint64_t(limit_s * 1e9));
  RETURN_IF_FAILED(cudaGetLastError());
  const auto begin = std::chrono::steady_clock::now();
  for (int k = 1; k <= made->blocks;) {
    if (words[k] != 0) {
      ++k;
      continue;
    }
    if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(5)) return int(cudaErrorNotReady);
    std::this_thread::yield();
  }
  return 0;
}

// One block of `threads` threads, and as much shared memory, looks for its end, for `limit_s` at most: what a
// kernel costs others by being there. *occupation goes to beside_release().
int beside_look(int device, int threads, int shared_bytes, double limit_s, void** occupation) {
  RETURN_IF_FAILED(cudaSetDevice(device));
  RETURN_IF_FAILED(cudaFuncSetAttribute(look_kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                        cudaSharedmemCarveoutMaxShared));
  auto* made = new (std::nothrow) Occupation{nullptr, nullptr, 1};
  if (made == nullptr) return int(cudaErrorMemoryAllocation);
  *occupation = made;
  RETURN_IF_FAILED(cudaStreamCreateWithFlags(&made->stream, cudaStreamNonBlocking));
  RETURN_IF_FAILED(cudaHostAlloc(&made->words, 2 * sizeof(unsigned), cudaHostAllocMapped));
  made->words[0] = 0;
  look_kernel<<<1, threads, shared_bytes, made->stream>>>(made->words, uint64_t(limit_s * 1e9));
  return int(cudaGetLastError());
}

// The kernel ends, and its memory is given back.
int beside_release(int device, void* occupation) {
  RETURN_IF_FAILED(cudaSetDevice(device));
  auto* made = static_cast<Occupation*>(occupation);
  if (made == nullptr) return 0;
  if (made->words != nullptr) *static_cast<volatile unsigned*>(made->words) = 1;
  RETURN_IF_FAILED(cudaStreamSynchronize(made->stream));
  RETURN_IF_FAILED(cudaStreamDestroy(made->stream));
  RETURN_IF_FAILED(cudaFreeHost(made->words));
  delete made;
  return 0;
}

// `bytes` at `data` (GPU memory, a multiple of 16) are read `passes` times; nothing is written to `sink`, 4
// bytes.
int beside_l2(int device, void* stream, const void* data, size_t bytes, int passes, void* sink) {
  RETURN_IF_FAILED(cudaSetDevice(device));
  int processors = 0;
  RETURN_IF_FAILED(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  l2_kernel<<<processors * 4, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<const uint4*>(data), bytes / sizeof(uint4), passes, static_cast<unsigned*>(sink));
  return int(cudaGetLastError());
}

int beside_issue(int device, void* stream, long rounds, void* sink) {
  RETURN_IF_FAILED(cudaSetDevice(device));
  int processors = 0;
  RETURN_IF_FAILED(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  issue_kernel<<<processors * 4, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(rounds,
                                                                                   static_cast<float*>(sink));
  return int(cudaGetLastError());
}

// `steps` kernels, each of which reads and writes all of `bytes` at `data` (GPU memory, a multiple of 16).
int beside_steps(int device, void* stream, int steps, void* data, size_t bytes) {
  RETURN_IF_FAILED(cudaSetDevice(device));
  int processors = 0;
  RETURN_IF_FAILED(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  for (int k = 0; k < steps; ++k)
    step_kernel<<<processors * 2, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<float4*>(data), bytes / sizeof(float4));
  return int(cudaGetLastError());
}

// What synchronizes: frees memory that it has just allocated; `host`: pinned memory.
int beside_free(int device, int host, size_t bytes) {
  RETURN_IF_FAILED(cudaSetDevice(device));
  void* memory = nullptr;
  if (host != 0) {
    RETURN_IF_FAILED(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault));
    return int(cudaFreeHost(memory));
  }
  RETURN_IF_FAILED(cudaMalloc(&memory, bytes));
  return int(cudaFree(memory));
}

int beside_synchronize(int device) {
  RETURN_IF_FAILED(cudaSetDevice(device));
  return int(cudaDeviceSynchronize());
}

// A stream that work on the legacy default stream waits for, and that waits for it.
int beside_blocking_stream(int device, void** stream) {
  RETURN_IF_FAILED(cudaSetDevice(device));
  return int(cudaStreamCreate(reinterpret_cast<cudaStream_t*>(stream)));
}

}  // extern "C"
