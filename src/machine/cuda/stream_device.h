// device::StreamDevice on CUDA: what is put into streams, and what is known of them.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/called_thread.h"
#include "base/quick_mutex.h"
#include "device/stream_device.h"
#include "machine/cuda/daemon.h"
#include "machine/cuda/start.h"
#include "machine/cuda/stream_captures.h"
#include "machine/cuda/stream_depths.h"
#include "machine/place.h"

namespace starling::cuda {

struct ExecutorOptions {
  int device;
  DaemonStart start;
  std::byte* pool_base;
  uint64_t* relayed;      // GPU memory, zero; two words (DaemonLaunch), as the next ones
  uint64_t* watches;
  uint64_t* blocks_left;  // likewise; two words: of kernels that begin residencies, of helpers'
  uint64_t* left;         // host memory, zero; likewise
  uint64_t* drain;        // likewise; the relay passes it on
  AloneWords* alone;      // likewise; shared with start kernels
  uint64_t* begun;        // host memory, zero; two words: the last herald that has run, the last daemon
  uint64_t* depths;       // likewise; StreamDepths::kMostStreams
  device::CallBox* calls;  // likewise; StreamFacts::calls
  device::StreamPolicy policy;
};

class CudaStreamDevice {
 public:
  explicit CudaStreamDevice(const ExecutorOptions& options);
  ~CudaStreamDevice();
  CudaStreamDevice(const CudaStreamDevice&) = delete;
  CudaStreamDevice& operator=(const CudaStreamDevice&) = delete;

  void launch_daemon(const device::DaemonArguments& daemon);
  bool daemon_put() const;
  bool daemon_come() const;
  bool daemon_begun() const;
  bool daemon_resident();
  void launch_helpers(const device::DaemonArguments& daemon);
  bool helpers_resident();
  void launch_start(device::Stream stream, const device::StartArguments* const* starts, uint32_t count);
  void launch_call(device::Stream stream, const device::CallArguments& call);
  void launch_call_later(device::Stream stream, const device::CallArguments& call);
  void launch_gate(device::Stream stream, const device::GateArguments& gate);
  void launch_watch(device::Stream stream, const device::DaemonArguments& watch, uint32_t blocks);
  void write_value(device::Stream stream, uint64_t* word, uint64_t value);
  void wait_value(device::Stream stream, const uint64_t* word, uint64_t value);
  void wait_and_write(device::Stream stream, const uint64_t* word, uint64_t* then, uint64_t value);
  void copy(device::Stream stream, std::byte* to, const std::byte* from, uint64_t bytes);
  bool idle(device::Stream stream);
  uint32_t queued(device::Stream stream) { return depths_.queued(stream); }
  void release(uint64_t* word, uint64_t value);
  uint64_t now();

  // The number of the last residency whose first kernel is over. Acquire: what it wrote before is there.
  uint64_t last_left() const { return left(kFirst); }
  // How often helpers were asked for, and were so and have left.
  uint64_t helpers_asked() const { return helpers_asked_; }
  uint64_t helpers_left() const { return left(kHelpers); }
  // Asks the driver whether the kernels still live: at once, or soon on a thread of ours.
  void look_for_errors();
  void look_soon() { thread_.call(kLook); }
  // Nothing is launched any more; returns when the last daemon has left, and the last watch, whose streams go
  // on.
  void synchronize_daemon();
  device::Stream make_stream(bool urgent);

  // As in StreamOperations.
  std::optional<uint64_t> capture_of(device::Stream stream) const { return captures_.capture_of(stream); }
  void watch_graph(device::Stream stream, std::shared_ptr<std::atomic<bool>> dropped) const {
    captures_.watch_graph(stream, std::move(dropped));
  }
  // What is captured next comes behind what the order names; and before what it will name.
  void come_behind(device::Stream stream, CaptureOrder*& order) { captures_.come_behind(stream, order); }
  void come_before(device::Stream stream, CaptureOrder& order) { captures_.come_before(stream, order); }
  void end_order(CaptureOrder* order) { captures_.end_order(order); }
  // "" while all is well; the first failure stays. Any thread.
  std::string failure() const;

 private:
  using MemoryOperation = CUresult (*)(CUstream, CUdeviceptr, cuuint64_t, unsigned int);
  using MemoryOperations = CUresult (*)(CUstream, unsigned int, CUstreamBatchMemOpParams*, unsigned int);

  enum Kind : uint32_t { kFirst = 0, kHelpers = 1 };  // kernels of residencies
  // Of the calls of the driver's thread, behind the launches of both.
  static constexpr uint32_t kCalls = 2, kLook = 3;

  uint64_t left(Kind kind) const;
  void launch_now(Kind kind);
  void launch_calls_now();
  void await_watches();
  void note(cudaError_t status, const char* what);
  void put(device::Stream stream);

  const ExecutorOptions options_;
  std::vector<cudaStream_t> daemons_;  // the daemon's own, by kind; the second where there are guards
  MemoryOperation write_ = nullptr;
  MemoryOperation wait_ = nullptr;
  MemoryOperations operate_ = nullptr;
  StartKernels starts_;
  StreamCaptures captures_;
  device::DaemonArguments last_[2] = {};  // that were asked for, by kind
  uint64_t asked_ns_ = 0;                 // when the first kind was
  std::atomic<uint64_t> put_{0};  // the last residency whose launch has returned
  uint64_t blocks_[2] = {};  // of all launches, by kind
  uint64_t helpers_asked_ = 0;

  StreamDepths depths_;

  mutable QuickMutex mutex_;  // guards all below
  std::vector<cudaStream_t> made_;
  std::vector<cudaStream_t> calling_;  // of these, those that kernels were launched into which stay for calls
  struct LateCall {
    device::Stream stream;
    device::CallArguments call;
  };
  std::vector<LateCall> late_calls_;
  std::string failure_;

  CalledThread thread_;  // last: it uses all else
};
static_assert(device::StreamDevice<CudaStreamDevice>);

}  // namespace starling::cuda
