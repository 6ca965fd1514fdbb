// When does a kernel begin that is put in before it is needed, and that the CPU lets begin by a store? Behind
// a wait value, or behind a kernel of one warp that looks for the store; beside streams that stand, put in
// before them or after. What is launched when all others stand is asked too.
//
//   nvcc -std=c++20 -O2 -arch=sm_90 bench/gpu/standby_probe.cu -o standby_probe && ./standby_probe
#include <cuda.h>
#include <cuda_runtime.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr double kLimitUs = 200'000;
constexpr int kRepeats = 20;

enum class Behind { kWait, kKernel };

using WaitValue = CUresult (*)(CUstream, CUdeviceptr, cuuint64_t, unsigned int);

void check(int status, const char* what) {
  if (status == 0) return;
  std::printf("%s: error %d\n", what, status);
  std::exit(1);
}

// The daemon's stand-in: as large as that.
__global__ void __launch_bounds__(512, 1) tell(volatile uint64_t* word, uint64_t value) {
  if (blockIdx.x == 0 && threadIdx.x == 0) *word = value;
}

__global__ void look_for(const volatile uint64_t* word, uint64_t value) {
  while (*word < value) __nanosleep(200);
}

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void store(uint64_t* word, uint64_t value) {
  std::atomic_ref<uint64_t>(*word).store(value, std::memory_order_release);
}

bool becomes(uint64_t* word, uint64_t value, double limit_us = kLimitUs) {
  const double end = now_us() + limit_us;
  while (std::atomic_ref<uint64_t>(*word).load(std::memory_order_acquire) != value)
    if (now_us() > end) return false;
  return true;
}

cudaStream_t new_stream(int priority) {
  cudaStream_t stream;
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority), "cudaStreamCreate");
  return stream;
}

class Probe {
 public:
  Probe() {
    cudaDriverEntryPointQueryResult found;
    check(cudaGetDriverEntryPointByVersion("cuStreamWaitValue64", reinterpret_cast<void**>(&wait_value_),
                                           12000, cudaEnableDefault, &found),
          "cuStreamWaitValue64");
    check(cudaHostAlloc(reinterpret_cast<void**>(&words_), 4096, cudaHostAllocDefault), "cudaHostAlloc");
    std::fill(words_, words_ + 512, 0);
    int least = 0;
    check(cudaDeviceGetStreamPriorityRange(&least, &greatest_), "cudaDeviceGetStreamPriorityRange");
    daemon_ = new_stream(greatest_);
    side_ = new_stream(greatest_ + 1);
    tell<<<32, 512, 0, daemon_>>>(begun(), 0);
    look_for<<<1, 32, 0, daemon_>>>(go(), 0);
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }

  void measure(Behind behind, bool first, int standers, double idle_ms) {
    std::vector<cudaStream_t> streams(standers);
    for (cudaStream_t& stream : streams) stream = new_stream(0);
    std::vector<double> times;
    int lost = 0;
    int fresh = 0;
    for (int k = 0; k < kRepeats && lost == 0; ++k) {
      if (first) put(behind);
      for (cudaStream_t stream : streams) stand(stream);
      if (!first) put(behind);
      usleep(useconds_t(idle_ms * 1000));
      const double t0 = now_us();
      store(go(), number_);
      if (becomes(begun(), number_)) {
        times.push_back(now_us() - t0);
      } else {
        ++lost;
        tell<<<1, 32, 0, side_>>>(other(), ++pokes_);
        fresh += becomes(other(), pokes_);
      }
      store(standing(), ++stand_);
      check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    }
    std::sort(times.begin(), times.end());
    std::printf("| %s | %s | %d | %.1f | ", behind == Behind::kWait ? "a wait value" : "a kernel that looks",
                first ? "before" : "after", standers, idle_ms);
    if (lost == 0)
      std::printf("%.1f us, at most %.1f | |\n", times[times.size() / 2], times.back());
    else
      std::printf("**never** | %s |\n", fresh != 0 ? "yes" : "no");
    std::fflush(stdout);
    for (cudaStream_t stream : streams) cudaStreamDestroy(stream);
  }

 private:
  uint64_t* go() const { return words_; }
  uint64_t* begun() const { return words_ + 8; }
  uint64_t* standing() const { return words_ + 16; }
  uint64_t* other() const { return words_ + 24; }

  void wait(cudaStream_t stream, uint64_t* word, uint64_t value) const {
    check(wait_value_(stream, CUdeviceptr(word), value, CU_STREAM_WAIT_VALUE_GEQ), "a wait value");
  }

  void put(Behind behind) {
    ++number_;
    if (behind == Behind::kWait)
      wait(daemon_, go(), number_);
    else
      look_for<<<1, 32, 0, daemon_>>>(go(), number_);
    tell<<<32, 512, 0, daemon_>>>(begun(), number_);
  }

  void stand(cudaStream_t stream) const {
    tell<<<1, 32, 0, stream>>>(words_ + 32, 1);
    wait(stream, standing(), stand_ + 1);
    tell<<<1, 32, 0, stream>>>(words_ + 32, 1);
  }

  WaitValue wait_value_ = nullptr;
  uint64_t* words_ = nullptr;
  int greatest_ = 0;
  cudaStream_t daemon_, side_;
  uint64_t number_ = 0, stand_ = 0, pokes_ = 0;
};

}  // namespace

int main() {
  check(cudaSetDevice(0), "cudaSetDevice");
  Probe probe;
  std::printf(
      "| the kernel stands behind | put in, of the others | streams that stand | idle, ms | begins after | "
      "if "
      "never: does one that is launched then, in another stream |\n| --- | --- | --- | --- | --- | --- |\n");
  for (const Behind behind : {Behind::kWait, Behind::kKernel})
    for (const bool first : {true, false})
      for (const int standers : {0, 1, 4, 7, 8, 9, 16, 32})
        for (const double idle_ms : {0.1, 12.0}) probe.measure(behind, first, standers, idle_ms);
}
