// Calls of the driver that nobody may wait for: a thread of their own makes them. A launch, and even a query,
// may stand in the driver behind a call of the program that waits for the GPU, and what the GPU waits for may
// have to come from the poller meanwhile (docs/design/0007-start-as-a-kernel.md).
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace starling::cuda {

class DriverThread {
 public:
  DriverThread(std::function<void()> launch, std::function<void()> look)
      : launch_(std::move(launch)), look_(std::move(look)), thread_([this] { run(); }) {}
  ~DriverThread() { stop(); }
  DriverThread(const DriverThread&) = delete;
  DriverThread& operator=(const DriverThread&) = delete;

  // One call of `launch` soon, which sees what the caller wrote before. Returns at once. One at a time.
  void launch() { want(launch_wanted_); }
  // One call of `look` soon. Returns at once. Any thread.
  void look() { want(look_wanted_); }

  // What was asked for and has not begun is left out. Idempotent; by one thread.
  void stop() {
    if (!thread_.joinable()) return;
    want(ending_);
    thread_.join();
  }

 private:
  void want(bool& what) {
    {
      std::lock_guard lock(mutex_);
      what = true;
    }
    changed_.notify_one();
  }

  void run() {
    for (;;) {
      bool launches = false;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return launch_wanted_ || look_wanted_ || ending_; });
        if (ending_) return;
        launches = launch_wanted_;
        (launches ? launch_wanted_ : look_wanted_) = false;
      }
      launches ? launch_() : look_();
    }
  }

  const std::function<void()> launch_, look_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  bool launch_wanted_ = false;
  bool look_wanted_ = false;
  bool ending_ = false;
  std::thread thread_;  // last: it begins when all else is there
};

}  // namespace starling::cuda
