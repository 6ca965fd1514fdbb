// Asks the driver whether the kernels still live, on a thread of its own: even a query may stand in the
// driver behind a call that waits for the GPU, and what the GPU waits for must come from the poller
// meanwhile.
#pragma once
#include <condition_variable>
#include <mutex>
#include <thread>

#include "machine/cuda/stream_device.h"

namespace starling::cuda {

class ErrorWatch {
 public:
  explicit ErrorWatch(CudaStreamDevice& device) : device_(device), thread_([this] { run(); }) {}
  ~ErrorWatch() {
    {
      std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  ErrorWatch(const ErrorWatch&) = delete;
  ErrorWatch& operator=(const ErrorWatch&) = delete;

  // One look soon; what it finds, CudaStreamDevice::failure() says. Returns at once. Any thread.
  void look() {
    {
      std::lock_guard lock(mutex_);
      wanted_ = true;
    }
    changed_.notify_one();
  }

 private:
  void run() {
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return wanted_ || ending_; });
        if (ending_) return;
        wanted_ = false;
      }
      device_.look_for_errors();
    }
  }

  CudaStreamDevice& device_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  bool wanted_ = false;
  bool ending_ = false;
  std::thread thread_;  // last: it begins when all else is there
};

}  // namespace starling::cuda
