// Launches a rank's daemon kernel, and knows from a word in host memory whether it is resident. No call of
// the driver that waits for the device is on the way of an operation.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <mutex>
#include <string>

#include "machine/cuda/daemon.h"
#include "machine/place.h"

namespace starling::cuda {

struct ExecutorOptions {
  int device;
  DaemonStart start;
  std::byte* pool_base;
  uint64_t* relayed;      // GPU memory, zero
  uint64_t* blocks_left;  // likewise
  uint64_t* left;         // host memory, zero
};

class CudaExecutor final : public Executor {
 public:
  CudaExecutor(const ExecutorOptions& options, Place& place);
  // Ends the residency, and waits for that.
  ~CudaExecutor() override;
  CudaExecutor(const CudaExecutor&) = delete;
  CudaExecutor& operator=(const CudaExecutor&) = delete;

  void ring() override;
  void keep_running(bool work) override;
  bool run_here(CompletionListener&, bool) override { return false; }
  bool ask_to_leave() override { return false; }
  void end_early() override {}
  void synchronize() override;
  bool quiet() const override;
  std::string failure() const override;

 private:
  bool resident() const;
  bool unread() const;
  void launch();
  void look_for_errors(uint64_t now);

  const ExecutorOptions options_;
  Place& place_;
  mutable std::mutex mutex_;  // guards all below
  cudaStream_t stream_ = nullptr;
  uint64_t launch_ = 0;       // number of the current or last residency
  uint64_t left_at_ns_ = 0;   // when its end was noticed; 0: not yet
  uint64_t looked_at_ns_ = 0;
  std::string failure_;
};

}  // namespace starling::cuda
