// How many works of a group are between launch and completion.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace starling::torch_adapter {

class InFlight {
 public:
  void enter() {
    const std::lock_guard lock(mutex_);
    ++count_;
  }

  void leave() {
    const std::lock_guard lock(mutex_);
    if (--count_ == 0) none_.notify_all();
  }

  // False if some were still there after `timeout`, or now, where the program has been interrupted.
  bool wait_until_none(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    none_.wait_for(lock, timeout, [this] { return count_ == 0 || interrupted_; });
    return count_ == 0;
  }

  // A wait for one of them ended by Ctrl-C: nobody wants the others any more.
  void interrupted() {
    const std::lock_guard lock(mutex_);
    interrupted_ = true;
    none_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable none_;
  std::int64_t count_ = 0;
  bool interrupted_ = false;
};

}  // namespace starling::torch_adapter
