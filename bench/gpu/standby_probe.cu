// When does a kernel begin that is to begin soon after a store of the CPU's, beside streams that stand? Put
// in before that behind a wait value, or behind a kernel of one warp that looks for the store; several of the
// kind at once; launched then; or launched then by a kernel of one warp that is there. Before the others
// stand, or after; and while a caller stands in the driver. `green`: in streams of a green context of all
// multiprocessors.
//
//   nvcc -std=c++20 -O2 -arch=sm_90 -rdc=true bench/gpu/standby_probe.cu -o standby_probe -lcudadevrt
//   ./standby_probe [green]
#include <cuda.h>
#include <cuda_runtime.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

constexpr double kLimitUs = 200'000;
constexpr int kRepeats = 20;
constexpr useconds_t kIdleUs = 2000;

enum class Way { kWait, kKernel, kSeveral, kLaunch, kDevice };
constexpr const char* kNames[] = {"behind a wait value", "behind a kernel that looks",
                                  "behind a wait value, all 20 at once", "launched then",
                                  "launched then by a kernel that is there"};

void check(int status, const char* what) {
  if (status == 0) return;
  std::printf("%s: error %d\n", what, status);
  std::exit(1);
}

template <class Function>
Function driver(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result;
  check(cudaGetDriverEntryPointByVersion(name, &found, 13000, cudaEnableDefault, &result), name);
  return reinterpret_cast<Function>(found);
}

// The daemon's stand-in: as large as that.
__global__ void __launch_bounds__(512, 1) tell(volatile uint64_t* word, uint64_t value) {
  if (blockIdx.x == 0 && threadIdx.x == 0) *word = value;
}

__global__ void look_for(const volatile uint64_t* word, uint64_t value) {
  while (*word < value) __nanosleep(200);
}

// Launches one for each number up to `last`, when *go has come to it.
__global__ void __launch_bounds__(32, 1)
    launch_for(const volatile uint64_t* go, uint64_t number, uint64_t last, uint64_t* begun) {
  for (; number <= last; ++number) {
    while (*go < number) __nanosleep(200);
    if (threadIdx.x == 0) tell<<<32, 512, 0, cudaStreamFireAndForget>>>(begun, number);
    __syncwarp();
  }
}

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void store(uint64_t* word, uint64_t value) {
  std::atomic_ref<uint64_t>(*word).store(value, std::memory_order_release);
}

bool becomes(uint64_t* word, uint64_t value) {
  const double end = now_us() + kLimitUs;
  while (std::atomic_ref<uint64_t>(*word).load(std::memory_order_acquire) != value)
    if (now_us() > end) return false;
  return true;
}

class Probe {
 public:
  explicit Probe(bool green) {
    check(cudaHostAlloc(reinterpret_cast<void**>(&words_), 4096, cudaHostAllocDefault), "cudaHostAlloc");
    std::fill(words_, words_ + 512, 0);
    int least = 0, greatest = 0;
    check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
    if (green)
      make_green_stream(greatest);
    else
      check(cudaStreamCreateWithPriority(&daemon_, cudaStreamNonBlocking, greatest), "cudaStreamCreate");
    tell<<<32, 512, 0, daemon_>>>(begun(), 0);
    look_for<<<1, 32, 0, daemon_>>>(go(), 0);
    launch_for<<<1, 32, 0, daemon_>>>(go(), 1, 0, begun());
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }

  void measure(Way way, bool before, int standers) {
    std::vector<cudaStream_t> streams(standers);
    for (cudaStream_t& stream : streams)
      check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    std::vector<double> times;
    const bool once = way == Way::kSeveral || way == Way::kDevice;  // for all repeats
    bool lost = false;
    for (int k = 0; k < kRepeats && !lost; ++k) {
      if (k == 0 || !once) {
        if (before) put(way);
        for (cudaStream_t stream : streams) stand(stream);
        if (!before) put(way);
      }
      usleep(kIdleUs);
      const double t0 = now_us();
      store(go(), ++number_);
      if (way == Way::kLaunch) tell<<<32, 512, 0, daemon_>>>(begun(), number_);
      lost = !becomes(begun(), number_);
      if (!lost) times.push_back(now_us() - t0);
      if (lost && once) store(go(), number_ += kRepeats - 1 - k);
      if (lost || !once || k + 1 == kRepeats) {
        store(standing(), ++stand_);
        check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      }
    }
    std::sort(times.begin(), times.end());
    std::printf("| %s | %s | %d | ", kNames[int(way)], before ? "before" : "after", standers);
    if (lost)
      std::printf("**never** |\n");
    else
      std::printf("%.1f us, at most %.1f |\n", times[times.size() / 2], times.back());
    std::fflush(stdout);
    for (cudaStream_t stream : streams) cudaStreamDestroy(stream);
  }

  // Another thread stands in the driver, since its stream's launch queue is full: when does a launch into
  // another stream return, and its kernel begin?
  void measure_full_queue() {
    cudaStream_t full;
    check(cudaStreamCreateWithFlags(&full, cudaStreamNonBlocking), "cudaStreamCreate");
    wait(full, standing(), stand_ + 1);
    std::atomic<int> put{0};
    std::thread caller([&] {
      check(cudaSetDevice(0), "cudaSetDevice");
      for (; put < kMoreThanFull; ++put) tell<<<1, 32, 0, full>>>(words_ + 32, 1);
    });
    usleep(200'000);
    const int before = put;
    std::atomic<double> returned{0};
    const double t0 = now_us();
    ++number_;
    std::thread launcher([&] {
      check(cudaSetDevice(0), "cudaSetDevice");
      tell<<<32, 512, 0, daemon_>>>(begun(), number_);
      returned = now_us() - t0;
    });
    const bool began = becomes(begun(), number_);
    const double begins = now_us() - t0;
    usleep(10'000);
    std::printf(
        "\na caller stands in the driver after %d launches of %d; another thread's launch into another "
        "stream "
        "returned after %.1f us (0: not yet), and its kernel %s after %.1f us\n",
        before, kMoreThanFull, returned.load(), began ? "began" : "had not begun", begins);
    store(standing(), ++stand_);
    caller.join();
    launcher.join();
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    cudaStreamDestroy(full);
  }

 private:
  static constexpr int kMoreThanFull = 1500;

  uint64_t* go() const { return words_; }
  uint64_t* begun() const { return words_ + 8; }
  uint64_t* standing() const { return words_ + 16; }

  void make_green_stream(int priority) {
    CUdevice device;
    check(driver<decltype(&cuDeviceGet)>("cuDeviceGet")(&device, 0), "cuDeviceGet");
    CUdevResource all;
    check(driver<decltype(&cuDeviceGetDevResource)>("cuDeviceGetDevResource")(device, &all,
                                                                              CU_DEV_RESOURCE_TYPE_SM),
          "cuDeviceGetDevResource");
    CUdevResourceDesc described;
    check(driver<decltype(&cuDevResourceGenerateDesc)>("cuDevResourceGenerateDesc")(&described, &all, 1),
          "cuDevResourceGenerateDesc");
    CUgreenCtx context;
    check(driver<decltype(&cuGreenCtxCreate)>("cuGreenCtxCreate")(&context, described, device,
                                                                  CU_GREEN_CTX_DEFAULT_STREAM),
          "cuGreenCtxCreate");
    CUstream stream;
    check(driver<decltype(&cuGreenCtxStreamCreate)>("cuGreenCtxStreamCreate")(
              &stream, context, CU_STREAM_NON_BLOCKING, priority),
          "cuGreenCtxStreamCreate");
    daemon_ = stream;
  }

  void wait(cudaStream_t stream, uint64_t* word, uint64_t value) const {
    check(wait_value_(stream, CUdeviceptr(word), value, CU_STREAM_WAIT_VALUE_GEQ), "a wait value");
  }

  // The next one, or all that follow.
  void put(Way way) {
    const uint64_t last = number_ + (way == Way::kSeveral ? kRepeats : 1);
    if (way == Way::kDevice)
      launch_for<<<1, 32, 0, daemon_>>>(go(), number_ + 1, number_ + kRepeats, begun());
    if (way == Way::kDevice || way == Way::kLaunch) return;
    for (uint64_t number = number_ + 1; number <= last; ++number) {
      if (way == Way::kKernel)
        look_for<<<1, 32, 0, daemon_>>>(go(), number);
      else
        wait(daemon_, go(), number);
      tell<<<32, 512, 0, daemon_>>>(begun(), number);
    }
  }

  void stand(cudaStream_t stream) const {
    tell<<<1, 32, 0, stream>>>(words_ + 32, 1);
    wait(stream, standing(), stand_ + 1);
    tell<<<1, 32, 0, stream>>>(words_ + 32, 1);
  }

  decltype(&cuStreamWaitValue64) wait_value_ = driver<decltype(&cuStreamWaitValue64)>("cuStreamWaitValue64");
  uint64_t* words_ = nullptr;
  cudaStream_t daemon_ = nullptr;
  uint64_t number_ = 0, stand_ = 0;
};

}  // namespace

int main(int argc, char**) {
  check(cudaSetDevice(0), "cudaSetDevice");
  check(cudaFree(nullptr), "cudaFree");
  Probe probe(argc > 1);
  std::printf(
      "| the kernel is | put in, of the others | streams that stand | begins after |\n"
      "| --- | --- | --- | --- |\n");
  for (const Way way : {Way::kWait, Way::kKernel, Way::kSeveral, Way::kLaunch, Way::kDevice})
    for (const bool before : {true, false})
      for (const int standers : {0, 4, 7, 8, 16, 32})
        if (way != Way::kLaunch || !before) probe.measure(way, before, standers);
  probe.measure_full_queue();
}
