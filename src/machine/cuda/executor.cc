#include "machine/cuda/executor.h"

#include <time.h>

#include <atomic>

#include "machine/cpu/futex.h"
#include "machine/cuda/error.h"

namespace starling::cuda {
namespace {

constexpr uint64_t kRestartPeriodNs = 50'000;  // stuck operations are tried again after so long
constexpr uint64_t kErrorPeriodNs =
    2'000'000;  // how often the driver is asked whether the kernel still lives

void nap(uint64_t ns) {
  const timespec time{0, long(ns)};
  nanosleep(&time, nullptr);
}

// Acquire: pairs with the releases of the kernel's stores to host memory.
uint64_t load_acquire(const uint64_t* word) {
  return std::atomic_ref<uint64_t>(*const_cast<uint64_t*>(word)).load(std::memory_order_acquire);
}

}  // namespace

CudaExecutor::CudaExecutor(const ExecutorOptions& options, Place& place) : options_(options), place_(place) {
  const DeviceGuard guard(options_.device);
  check(cudaError_t(preload_daemon()), "loading the daemon kernel");
  int least = 0;
  int greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest), "cudaStreamCreate");
}

CudaExecutor::~CudaExecutor() {
  try {
    const DeviceGuard guard(options_.device);
    {
      std::lock_guard lock(mutex_);
      // Whoever is inside leaves at its next yield: pairs with the acquires of `drain` in Daemon.
      if (launch_ > 0) place_.write(&options_.start.daemon->drain, &launch_, sizeof launch_);
      place_.flush();
    }
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  } catch (const Error&) {
    // The device has failed: nothing runs there any more.
  }
}

// Acquire: pairs with the release of the last block; what the residency wrote before is there.
bool CudaExecutor::resident() const { return load_acquire(options_.left) >> 8 != launch_; }

bool CudaExecutor::unread() const {
  const SubmissionRing& ring = *options_.start.submissions;
  for (uint32_t b = 0; b < options_.start.block_count; ++b)
    if (load_acquire(&ring.heads[b * SubmissionRing::kHeadStride]) != ring.tail) return true;
  return false;
}

void CudaExecutor::ring() {
  std::lock_guard lock(mutex_);
  if (!resident() && failure_.empty()) launch();
}

void CudaExecutor::keep_running(bool work) {
  if (!work) return;
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || !failure_.empty()) return;
  const uint64_t now = cpu::monotonic_ns();
  if (now - looked_at_ns_ > kErrorPeriodNs) look_for_errors(now);
  if (!failure_.empty() || resident()) return;
  if (left_at_ns_ == 0) left_at_ns_ = now;
  // A submission that came while it left is served at once. Stuck operations wait a little: the GPU is free
  // for others meanwhile, and whoever waits for the device gets through.
  if (unread() || now - left_at_ns_ > kRestartPeriodNs) launch();
}

void CudaExecutor::launch() {
  const DeviceGuard guard(options_.device);
  ++launch_;
  left_at_ns_ = 0;
  const DaemonStart& s = options_.start;
  const DaemonLaunch launch{{s.daemon, s.completions, s.completion_kind, launch_, options_.pool_base},
                            *s.submissions,
                            options_.relayed,
                            options_.blocks_left,
                            options_.left};
  const auto status = cudaError_t(launch_daemon(launch, s.block_count, stream_));
  if (status != cudaSuccess)
    failure_ = std::string("the daemon kernel could not be launched: ") + cudaGetErrorString(status);
}

void CudaExecutor::look_for_errors(uint64_t now) {
  looked_at_ns_ = now;
  const DeviceGuard guard(options_.device);
  const cudaError_t status = cudaStreamQuery(stream_);
  if (status != cudaSuccess && status != cudaErrorNotReady)
    failure_ = std::string("the GPU failed: ") + cudaGetErrorString(status);
}

void CudaExecutor::synchronize() {
  uint64_t target = 0;
  {
    std::lock_guard lock(mutex_);
    target = launch_;
  }
  while (load_acquire(options_.left) >> 8 < target) {
    {
      std::lock_guard lock(mutex_);
      look_for_errors(cpu::monotonic_ns());
      if (!failure_.empty()) throw Error(Code::system, failure_, "see the driver's log (nvidia-smi, dmesg)");
    }
    nap(5'000);
  }
}

bool CudaExecutor::quiet() const {
  std::lock_guard lock(mutex_);
  return !resident() && !unread();
}

std::string CudaExecutor::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace starling::cuda
