#include "machine/cuda/stream_device.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "base/log.h"
#include "machine/cpu/futex.h"
#include "machine/cuda/device_guard.h"
#include "machine/cuda/driver.h"
#include "machine/cuda/error.h"
#include "machine/cuda/streams.h"

namespace starling::cuda {
namespace {

constexpr uint64_t kLeavingNs = 1'000'000'000;
// A launch takes 3 us, 0.3 to 1.2 ms beside a caller whose launch queue is full (docs/GPU_PROBE.md).
constexpr uint64_t kLongLaunchNs = 1'500'000;

// Who waits for a daemon that does not come should know whether the driver had it.
void report_launches(uint64_t asked_ns, uint64_t began_ns, uint64_t between_ns, uint64_t ended_ns) {
  if (ended_ns - asked_ns < kLongLaunchNs) return;
  const auto us = [](uint64_t ns) { return ns / 1000; };
  log(LogLevel::info, "launching the daemon took ", us(ended_ns - asked_ns), " us: ", us(began_ns - asked_ns),
      " until a thread had it, ", us(between_ns - began_ns), " for the herald and ",
      us(ended_ns - between_ns), " for the daemon in the driver, which another call of this process kept");
}

}  // namespace

// ---- the daemon ---------------------------------------------------------------------------------------

CudaStreamDevice::CudaStreamDevice(const ExecutorOptions& options)
    : options_(options),
      captures_(options.device),
      depths_(options.depths),
      thread_("st-daemon", {[this] { launch_now(kFirst); }, [this] { launch_now(kHelpers); },
                            [this] { launch_calls_now(); }, [this] { look_for_errors(); }}) {
  const DeviceGuard guard(options_.device);
  write_ = driver_function<MemoryOperation>("cuStreamWriteValue64");
  wait_ = driver_function<MemoryOperation>("cuStreamWaitValue64");
  operate_ = driver_function<MemoryOperations>("cuStreamBatchMemOp");
  daemons_.resize(options.policy.guards ? 2 : 1);
  for (cudaStream_t& stream : daemons_) stream = new_stream(options_.device, StreamUse::kDaemon);
  check(cudaError_t(preload_daemon(daemons_[kFirst])), "loading the daemon kernel");
  check(cudaError_t(starts_.load()), "finding the start kernels");
  check(cudaError_t(starts_.preload(daemons_[kFirst])), "loading the start kernels");
  check(cudaStreamSynchronize(daemons_[kFirst]), "the first kernels");
}

device::Stream CudaStreamDevice::make_stream(bool urgent) {
  const cudaStream_t stream = new_stream(options_.device, urgent ? StreamUse::kUrgent : StreamUse::kOrdinary);
  const std::lock_guard lock(mutex_);
  made_.push_back(stream);
  return stream;
}

CudaStreamDevice::~CudaStreamDevice() {
  thread_.stop();
  try {
    const DeviceGuard guard(options_.device);
    for (cudaStream_t stream : daemons_) cudaStreamDestroy(stream);
    for (cudaStream_t stream : made_) cudaStreamDestroy(stream);
  } catch (const Error&) {
    // The device has failed: nothing runs there any more.
  }
}

void CudaStreamDevice::launch_daemon(const device::DaemonArguments& daemon) {
  last_[kFirst] = daemon;
  asked_ns_ = now();
  thread_.call(kFirst);
}

void CudaStreamDevice::launch_helpers(const device::DaemonArguments& daemon) {
  last_[kHelpers] = daemon;
  ++helpers_asked_;
  thread_.call(kHelpers);
}

// On the driver's thread, after which nobody writes what it reads before the kernel, or those of its kind,
// are over.
void CudaStreamDevice::launch_now(Kind kind) {
  const DeviceGuard guard(options_.device);
  const bool helpers = kind == kHelpers;
  const device::DaemonArguments& daemon = last_[kind];
  const uint32_t all = options_.start.block_count;
  const uint32_t blocks = helpers ? all - 1 : daemon.guards != 0 ? 1 : all;
  blocks_[kind] += blocks;
  DaemonLaunch launch{daemon,
                      *options_.start.submissions,
                      options_.relayed,
                      options_.blocks_left + kind,
                      blocks_[kind],
                      helpers ? helpers_asked_ : daemon.launch,
                      options_.left + kind,
                      options_.drain,
                      options_.watches,
                      helpers ? nullptr : options_.begun + 1};
  launch.daemon.first = helpers;
  const uint64_t began_ns = now(), asked_ns = helpers ? began_ns : asked_ns_;
  if (!helpers)
    note(cudaError_t(cuda::launch_herald(options_.begun, daemon.launch, daemons_[kind])),
         "the daemon's herald could not be launched");
  const uint64_t between_ns = now();
  note(cudaError_t(cuda::launch_daemon(launch, blocks, daemons_[kind])),
       "the daemon kernel could not be launched");
  // Release: pairs with the acquire in daemon_put(). The driver has both kernels, or has failed and it was
  // noted.
  if (!helpers) put_.store(launch.daemon.launch, std::memory_order_release);
  if (!helpers) report_launches(asked_ns, began_ns, between_ns, now());
}

// The herald goes in before the daemon, by a launch of its own: between the two anybody may put something in.
bool CudaStreamDevice::daemon_put() const {
  return put_.load(std::memory_order_acquire) == last_[kFirst].launch || !failure().empty();
}

// Not when the launch has returned: the GPU may begin nothing new until it is idle (a kernel of the program
// needs more local memory, say), and a start kernel that stays for the daemon would keep it from that.
bool CudaStreamDevice::daemon_come() const {
  // Acquire: pairs with the release in herald_kernel(); nothing hangs on it.
  if (std::atomic_ref<uint64_t>(*options_.begun).load(std::memory_order_acquire) == last_[kFirst].launch)
    return true;
  return !failure().empty();  // it never comes, and nobody may wait for it
}

// Between the herald and the daemon another stream may have come to stand in its hardware queue.
bool CudaStreamDevice::daemon_begun() const {
  // Acquire: pairs with the release in daemon_kernel(); nothing hangs on it.
  return std::atomic_ref<uint64_t>(options_.begun[1]).load(std::memory_order_acquire) == last_[kFirst].launch;
}

uint64_t CudaStreamDevice::left(Kind kind) const {
  // Acquire: pairs with the release of the last block (daemon.cu).
  return std::atomic_ref<uint64_t>(options_.left[kind]).load(std::memory_order_acquire);
}

bool CudaStreamDevice::daemon_resident() { return last_left() != last_[kFirst].launch; }
bool CudaStreamDevice::helpers_resident() { return helpers_left() != helpers_asked_; }

void CudaStreamDevice::look_for_errors() {
  const DeviceGuard guard(options_.device);
  for (cudaStream_t stream : daemons_) {
    const cudaError_t status = cudaStreamQuery(stream);
    if (status != cudaErrorNotReady) note(status, "the GPU failed");
  }
}

void CudaStreamDevice::synchronize_daemon() {
  thread_.stop();
  const DeviceGuard guard(options_.device);
  for (cudaStream_t stream : daemons_) cudaStreamSynchronize(stream);
  for (cudaStream_t stream : calling_) cudaStreamSynchronize(stream);
  if (options_.policy.watches) await_watches();
}

// Those that are there have been released, or leave because all do. Who comes later touches nothing.
void CudaStreamDevice::await_watches() {
  const uint64_t end = cpu::monotonic_ns() + kLeavingNs;
  // Twice: one that has just looked, and found that it has to stand, says so a moment later.
  for (uint32_t alike = 0; alike < 2 && cpu::monotonic_ns() < end;) {
    uint64_t came_and_left[2] = {};
    const cudaStream_t stream = daemons_[kFirst];
    if (cudaMemcpyAsync(came_and_left, options_.watches, sizeof came_and_left, cudaMemcpyDeviceToHost,
                        stream) != cudaSuccess ||
        cudaStreamSynchronize(stream) != cudaSuccess)
      return;  // the device has failed: nothing runs there any more
    alike = came_and_left[0] == came_and_left[1] ? alike + 1 : 0;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

// ---- streams ------------------------------------------------------------------------------------------

void CudaStreamDevice::launch_start(device::Stream stream, const device::StartArguments* const* starts,
                                    uint32_t count) {
  const DeviceGuard guard(options_.device, OnlyLaunches{});
  const auto status = cudaError_t(starts_.launch(starts, count, stream));
  // Nothing of a capture counts: it never runs where it was captured. And what the driver refuses is refused
  // to the caller alone.
  if (starts[0]->captured != nullptr) return check(status, "capturing an operation");
  note(status, "an operation could not be put into its stream");
  put(stream);
}

void CudaStreamDevice::launch_call(device::Stream stream, const device::CallArguments& call) {
  const DeviceGuard guard(options_.device, OnlyLaunches{});
  // Without a mark (put()): one would stand behind it in its hardware queue.
  note(cudaError_t(starts_.launch_call(call, stream)), "an operation could not be put into its stream");
  const auto handle = static_cast<cudaStream_t>(stream);
  const std::lock_guard lock(mutex_);
  if (std::find(calling_.begin(), calling_.end(), handle) == calling_.end()) calling_.push_back(handle);
}

void CudaStreamDevice::launch_call_later(device::Stream stream, const device::CallArguments& call) {
  {
    const std::lock_guard lock(mutex_);
    late_calls_.push_back({stream, call});
  }
  thread_.call(kCalls);
}

void CudaStreamDevice::launch_calls_now() {
  std::vector<LateCall> late;
  {
    const std::lock_guard lock(mutex_);
    late.swap(late_calls_);
  }
  for (const LateCall& one : late) launch_call(one.stream, one.call);
}

void CudaStreamDevice::launch_gate(device::Stream stream, const device::GateArguments& gate) {
  const DeviceGuard guard(options_.device);
  check(cudaError_t(cuda::launch_gate(gate, stream)), "capturing a wait for an operation");
}

void CudaStreamDevice::launch_watch(device::Stream stream, const device::DaemonArguments& watch,
                                    uint32_t blocks) {
  const DeviceGuard guard(options_.device);
  const DaemonLaunch launch{watch,
                            *options_.start.submissions,
                            options_.relayed,
                            nullptr,
                            0,
                            0,
                            nullptr,
                            options_.drain,
                            options_.watches,
                            nullptr};
  note(cudaError_t(cuda::launch_daemon(launch, blocks, stream)), "a watch could not be put into a stream");
  put(stream);
}

void CudaStreamDevice::write_value(device::Stream stream, uint64_t* word, uint64_t value) {
  const DeviceGuard guard(options_.device);
  const CUresult status =
      write_(static_cast<CUstream>(stream), CUdeviceptr(word), value, CU_STREAM_WRITE_VALUE_DEFAULT);
  note(status == CUDA_SUCCESS ? cudaSuccess : cudaErrorUnknown, "a mark could not be put into a stream");
  put(stream);
}

void CudaStreamDevice::wait_value(device::Stream stream, const uint64_t* word, uint64_t value) {
  const DeviceGuard guard(options_.device);
  const CUresult status =
      wait_(static_cast<CUstream>(stream), CUdeviceptr(word), value, CU_STREAM_WAIT_VALUE_GEQ);
  note(status == CUDA_SUCCESS ? cudaSuccess : cudaErrorUnknown, "a wait could not be put into a stream");
  put(stream);
}

void CudaStreamDevice::wait_and_write(device::Stream stream, const uint64_t* word, uint64_t* then,
                                      uint64_t value) {
  const DeviceGuard guard(options_.device);
  CUstreamBatchMemOpParams both[2] = {};
  both[0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
  both[0].waitValue.address = CUdeviceptr(word);
  both[0].waitValue.value64 = value;
  both[0].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  both[1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
  both[1].writeValue.address = CUdeviceptr(then);
  both[1].writeValue.value64 = value;
  both[1].writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
  const CUresult status = operate_(static_cast<CUstream>(stream), 2, both, 0);
  note(status == CUDA_SUCCESS ? cudaSuccess : cudaErrorUnknown, "a wait could not be put into a stream");
  put(stream);
}

void CudaStreamDevice::copy(device::Stream stream, std::byte* to, const std::byte* from, uint64_t bytes) {
  const DeviceGuard guard(options_.device);
  note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream)),
       "a copy could not be put into a stream");
  put(stream);
}

bool CudaStreamDevice::idle(device::Stream stream) {
  const DriverExcuse excuse;  // a query stands behind nothing (docs/GPU_PROBE.md)
  const DeviceGuard guard(options_.device);
  const cudaError_t status = cudaStreamQuery(static_cast<cudaStream_t>(stream));
  if (status != cudaSuccess) (void)cudaGetLastError();
  return status == cudaSuccess;
}

void CudaStreamDevice::put(device::Stream stream) {
  depths_.put(stream, [&](uint64_t* word, uint64_t value) {
    const DeviceGuard guard(options_.device);
    const CUresult status =
        write_(static_cast<CUstream>(stream), CUdeviceptr(word), value, CU_STREAM_WRITE_VALUE_DEFAULT);
    note(status == CUDA_SUCCESS ? cudaSuccess : cudaErrorUnknown, "a mark could not be put into a stream");
  });
}

// Release: nothing of ours hangs on it; a GPU sees it as any store to mapped memory.
void CudaStreamDevice::release(uint64_t* word, uint64_t value) {
  std::atomic_ref<uint64_t>(*word).store(value, std::memory_order_release);
}

uint64_t CudaStreamDevice::now() { return cpu::monotonic_ns(); }

// ---- errors -------------------------------------------------------------------------------------------

void CudaStreamDevice::note(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) failure_ = std::string(what) + ": " + cudaGetErrorString(status);
}

std::string CudaStreamDevice::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace starling::cuda
