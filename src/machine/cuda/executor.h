// When a rank's daemon kernel is launched, and how operations get into streams: device/stream_host.h over
// CUDA. No call of the driver that waits for the device is on the way of an operation.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "base/quick_mutex.h"
#include "base/short_list.h"
#include "machine/cpu/machine.h"
#include "machine/cuda/stream_device.h"
#include "machine/place.h"

namespace starling::cuda {

class CudaExecutor final : public Executor, public StreamOperations {
 public:
  explicit CudaExecutor(const ExecutorOptions& options);
  // Ends the residency, and waits for that.
  ~CudaExecutor() override;
  CudaExecutor(const CudaExecutor&) = delete;
  CudaExecutor& operator=(const CudaExecutor&) = delete;

  // ---- Executor
  void ring() override;
  bool keep_running(bool work, bool called) override;
  bool hurries() const override { return hurries_; }
  bool run_here(CompletionListener&, bool) override { return false; }
  bool ask_to_leave() override { return false; }
  void end_early() override {}
  void synchronize() override;
  bool quiet() const override;
  std::string failure() const override { return device_.failure(); }
  StreamOperations* streams() override { return this; }

  // ---- StreamOperations
  bool may_enter(const device::StreamCall& call) override;
  bool may_hold() override;
  bool may_hold(const device::StreamEntry& entry, device::Stream stream, bool by_itself) override;
  bool may_stand() override;
  device::StreamEntry enter(const device::StreamCall& call) override;
  void abandon(const device::StreamEntry& entry) override;
  uint32_t hold(device::StreamEntry& entry, device::Stream stream, bool by_itself) override;
  void completed(const device::StreamEntry& entry) override;
  void poison(const Handover& handover, uint64_t newest) override;
  bool submissions_read() const override;
  bool asks_for_calls() override;
  void note_calls(bool missing) override;
  bool wakes_watches() override;
  const device::Watched* turn_watches(const device::WatchLook& look, bool needed) override;
  void met(device::StreamEntry& entry) override;
  bool only_kernels() const override;
  bool has_room(device::Stream stream) override { return device_.queued(stream) < kMarksLimit; }
  void enqueue(std::span<const StreamLaunch> together) override;
  void mark(device::Stream stream, uint64_t* word, uint64_t value) override {
    device_.write_value(stream, word, value);
  }
  void copy(device::Stream stream, std::byte* to, const std::byte* from, uint64_t bytes) override {
    device_.copy(stream, to, from, bytes);
  }
  void wait_for(device::Stream stream, const Handover& handover, uint64_t sequence,
                uint32_t watch_blocks) override;
  device::Stream make_stream(bool urgent) override { return device_.make_stream(urgent); }
  bool may_capture() const override;
  bool shares_queue() const override { return host_.shares_queue(); }
  bool take_gate() override;
  void give_gate() override;
  void note_replays(bool under_way) override;
  std::optional<uint64_t> capture_of(device::Stream stream) override { return device_.capture_of(stream); }
  void end_order(CaptureOrder* order) override { device_.end_order(order); }
  void capture(std::span<const CapturedLaunch> together) override;
  void capture_wait(device::Stream stream, const Handover& handover, const uint64_t* captured) override;
  void watch_graph(device::Stream stream, std::shared_ptr<std::atomic<bool>> dropped) override {
    device_.watch_graph(stream, std::move(dropped));
  }

 private:
  // Entries of a stream's launch queue beyond which nothing that needs no kernel is added: below the depth at
  // which the driver makes its callers wait.
  static constexpr uint32_t kMarksLimit = 512;

  using Starts = ShortList<device::StartArguments, device::kMostTogether>;
  device::StartArguments& add_start(Starts& starts, const StreamLaunch& launch) const;

  const ExecutorOptions options_;
  CudaStreamDevice device_;
  cpu::CpuMachine machine_;  // the host's side of what it shares with blocks

  mutable QuickMutex mutex_;  // guards all below; ring() comes without the context's lock
  mutable device::StreamHost<cpu::CpuMachine, CudaStreamDevice> host_;
  uint64_t looked_at_ns_ = 0;
  bool hurries_ = false;
  bool wakes_watches_ = false;  // the poller's alone: at its last look
};

}  // namespace starling::cuda
