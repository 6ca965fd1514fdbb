// What the caller of an operation pays the driver for: a launch, by the size of its argument and by how it is
// launched, and the short calls around it. The floor under the CPU's part of a small operation
// (docs/design/0007-start-as-a-kernel.md). One GPU.
//
//   launch_probe       a table: us a call, the median and the least of nine rounds of 200; and one of what
//   kernels in
//                      a row take of the GPU, by the shared memory that the first of each pair has
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "probe.h"

namespace {

constexpr int kRounds = 9, kBurst = 200;

template <size_t kBytes>
struct Argument {
  unsigned char bytes[kBytes];
};

template <size_t kBytes>
__global__ void __launch_bounds__(512) kernel(const __grid_constant__ Argument<kBytes> argument, int* sink) {
  if (argument.bytes[kBytes - 1] == 251) *sink = 1;
}

cudaStream_t stream;
int* sink;

void measure(const std::string& what, const std::function<void()>& call) {
  std::vector<double> us;
  for (int round = 0; round < kRounds; ++round) {
    CUDA(cudaStreamSynchronize(stream));
    const auto begin = std::chrono::steady_clock::now();
    for (int k = 0; k < kBurst; ++k) call();
    us.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() /
                 kBurst);
  }
  CUDA(cudaStreamSynchronize(stream));
  std::sort(us.begin(), us.end());
  std::printf("| %s | %.2f | %.2f |\n", what.c_str(), us[us.size() / 2], us[0]);
}

template <size_t kBytes>
void launch(bool early, unsigned blocks, unsigned threads) {
  static const Argument<kBytes> argument{};
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = early ? 1 : 0;
  CUDA(cudaLaunchKernelEx(&config, kernel<kBytes>, argument, sink));
}

template <size_t kBytes>
void measure_launches() {
  for (const bool early : {false, true})
    measure("launch, argument of " + std::to_string(kBytes) + " bytes" + (early ? ", may begin early" : ""),
            [early] { launch<kBytes>(early, 1, 64); });
}

// What the first kernel of each pair has.
template <size_t kShared>
__global__ void __launch_bounds__(512, 1)
    sharing(const __grid_constant__ Argument<1536> argument, int* sink) {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  __shared__ unsigned char shared[kShared == 0 ? 1 : kShared];
  shared[threadIdx.x] = argument.bytes[threadIdx.x];
  __syncthreads();
  if (shared[threadIdx.x ^ 1] == 251) *sink = 1;
}

__global__ void reads(const int* sink, int* to) {
  if (*sink == 251) *to = 1;
}

// Bounded: some seconds.
__global__ void stands(const volatile uint32_t* go) {
  for (uint32_t k = 0; *go == 0 && k < (1u << 23); ++k) __nanosleep(100);
}

// Kernels stand in their stream before the first begins, so no caller counts.
template <size_t kShared>
void measure_on_gpu(const char* what, volatile uint32_t* go, int carveout, unsigned threads, bool alone) {
  CUDA(cudaFuncSetAttribute(sharing<kShared>, cudaFuncAttributePreferredSharedMemoryCarveout, carveout));
  static const Argument<1536> argument{};
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = 1;
  config.blockDim = threads;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  cudaEvent_t begin, end;
  CUDA(cudaEventCreate(&begin));
  CUDA(cudaEventCreate(&end));
  std::vector<double> us;
  for (int round = 0; round < kRounds; ++round) {
    *go = 0;
    stands<<<1, 1, 0, stream>>>(go);
    CUDA(cudaEventRecord(begin, stream));
    for (int k = 0; k < kBurst; ++k) {
      CUDA(cudaLaunchKernelEx(&config, sharing<kShared>, argument, sink));
      if (!alone) reads<<<1, 1, 0, stream>>>(sink, sink + 1);
    }
    CUDA(cudaEventRecord(end, stream));
    *go = 1;
    CUDA(cudaStreamSynchronize(stream));
    float ms;
    CUDA(cudaEventElapsedTime(&ms, begin, end));
    us.push_back(1000 * ms / kBurst);
  }
  std::sort(us.begin(), us.end());
  std::printf("| %s | %zu | %d | %u | %.2f | %.2f |\n", what, kShared, carveout, threads, us[us.size() / 2],
              us[0]);
}

template <size_t kShared>
void measure_pairs(volatile uint32_t* go) {
  for (const bool alone : {true, false})
    for (const int carveout : {-1, 0, 25, 50, 100})
      measure_on_gpu<kShared>(alone ? "alone" : "with one that reads behind it", go, carveout, 64, alone);
}

template <class F>
F driver_function(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result;
  CUDA(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result));
  return reinterpret_cast<F>(found);
}

// The driver's own function beside the runtime's, in turns.
void measure_by_driver() {
  const auto launch_by_driver =
      driver_function<CUresult (*)(const CUlaunchConfig*, CUfunction, void**, void**)>("cuLaunchKernelEx");
  cudaFunction_t function;
  CUDA(cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(kernel<1536>)));
  static Argument<1536> argument{};
  void* arguments[] = {&argument, &sink};
  CUlaunchAttribute early{};
  early.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  early.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = 64;
  config.hStream = stream;
  config.attrs = &early;
  config.numAttrs = 1;
  const auto by_driver = [&] { launch_by_driver(&config, function, arguments, nullptr); };
  for (int again = 0; again < 3; ++again) {
    measure("launch, 1536 bytes, may begin early, by the driver's function", by_driver);
    measure("launch, 1536 bytes, may begin early, by the runtime's", [] { launch<1536>(true, 1, 64); });
  }
  measure("1536 bytes by the driver's, and one of 16 behind it", [&] {
    by_driver();
    launch<16>(false, 1, 1);
  });
}

// What stands around a launch. word: of pinned memory, 1.
void measure_short_calls(unsigned long long* word) {
  using MemoryOperation = CUresult (*)(CUstream, CUdeviceptr, cuuint64_t, unsigned int);
  const auto write = driver_function<MemoryOperation>("cuStreamWriteValue64");
  const auto wait = driver_function<MemoryOperation>("cuStreamWaitValue64");
  measure("write value", [&] { write(stream, CUdeviceptr(word), 1, 0); });
  measure("wait value, met", [&] { wait(stream, CUdeviceptr(word), 1, CU_STREAM_WAIT_VALUE_GEQ); });
  const auto is_capturing =
      driver_function<CUresult (*)(CUstream, CUstreamCaptureStatus*)>("cuStreamIsCapturing");
  measure("is it capturing?", [&] {
    CUstreamCaptureStatus status;
    is_capturing(stream, &status);
  });
  const auto attribute =
      driver_function<CUresult (*)(void*, CUpointer_attribute, CUdeviceptr)>("cuPointerGetAttribute");
  measure("number of an allocation", [&] {
    unsigned long long identity;
    attribute(&identity, CU_POINTER_ATTRIBUTE_BUFFER_ID, CUdeviceptr(sink));
  });
  const auto current = driver_function<CUresult (*)(CUcontext*)>("cuCtxGetCurrent");
  measure("current context", [&] {
    CUcontext context;
    current(&context);
  });
  measure("capture mode, there and back", [&] {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    cudaThreadExchangeStreamCaptureMode(&mode);
  });
  cudaEvent_t event;
  CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  measure("record an event", [&] { CUDA(cudaEventRecord(event, stream)); });
  measure("query an event", [&] { cudaEventQuery(event); });
  const auto launch_behind = [](const char* what, const std::function<void()>& before) {
    measure(std::string("launch, argument of 16 bytes, behind ") + what, [&] {
      before();
      launch<16>(false, 1, 1);
    });
  };
  for (int again = 0; again < 3; ++again) {
    launch_behind("nothing", [] {});
    launch_behind("a write value", [&] { write(stream, CUdeviceptr(word), 1, 0); });
    launch_behind("an event", [&] { CUDA(cudaEventRecord(event, stream)); });
  }
}

void measure_rows() {
  uint32_t* go;
  CUDA(cudaHostAlloc(&go, sizeof *go, cudaHostAllocMapped));
  std::printf("\n| on the GPU | shared bytes | carve-out %% | threads | median us | least us |\n");
  std::printf("| --- | ---: | ---: | ---: | ---: | ---: |\n");
  measure_pairs<0>(go);
  measure_pairs<6144>(go);
  measure_pairs<13312>(go);
}

}  // namespace

int main() {
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CUDA(cudaMalloc(&sink, 2 * sizeof *sink));
  CUDA(cudaMemset(sink, 0, 2 * sizeof *sink));
  unsigned long long* word;
  CUDA(cudaHostAlloc(&word, sizeof *word, cudaHostAllocMapped));
  *word = 1;
  std::printf("| call | median us | least us |\n| --- | ---: | ---: |\n");
  measure_launches<16>();
  measure_launches<512>();
  measure_launches<1024>();
  measure_launches<1536>();
  measure_launches<3072>();
  measure_launches<4000>();
  measure_by_driver();
  measure("launch, 1536 bytes, 16 blocks of 512", [] { launch<1536>(true, 16, 512); });
  const auto pair = [](const char* how) {
    measure(std::string("launch, 1536 bytes, and one of 16 behind it") + how, [] {
      launch<1536>(true, 1, 64);
      launch<16>(false, 1, 1);
    });
  };
  pair("");
  {
    std::atomic<bool> end{false};
    std::thread other([&] {
      while (!end) {
        cudaStreamQuery(stream);
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
    });
    pair(", beside a thread that queries it every 20 us");
    end = true;
    other.join();
  }
  int devices = 0;
  CUDA(cudaGetDeviceCount(&devices));
  if (devices > 1) {
    CUDA(cudaSetDevice(1));
    CUDA(cudaFree(nullptr));
    CUDA(cudaDeviceEnablePeerAccess(0, 0));
    CUDA(cudaSetDevice(0));
    CUDA(cudaDeviceEnablePeerAccess(1, 0));
    pair(", with peer access");
  }
  cudaStream_t urgent;
  CUDA(cudaStreamCreateWithPriority(&urgent, cudaStreamNonBlocking, -5));
  pair(", with a stream of high priority");
  measure_short_calls(word);
  measure_rows();
  return 0;
}
