// A thread for what nobody may wait for: calls of a GPU's driver, mostly. A launch, and even a query, may
// stand there behind a call of the program that waits for the GPU, and what the GPU waits for may have to
// come from the poller meanwhile (docs/design/0007-start-as-a-kernel.md).
#pragma once
#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/thread.h"

namespace starling {

class CalledThread {
 public:
  // `name`: as start_thread(). What it can be asked for, the most urgent first.
  CalledThread(const char* name, std::vector<std::function<void()>> calls)
      : calls_(std::move(calls)), wanted_(calls_.size()), thread_(start_thread(name, [this] { run(); })) {}
  ~CalledThread() { stop(); }
  CalledThread(const CalledThread&) = delete;
  CalledThread& operator=(const CalledThread&) = delete;

  // Makes one of them soon, which sees what the caller wrote before. Returns at once. Any thread.
  void call(uint32_t which) { want(wanted_[which]); }

  // What was asked for and has not begun is left out. Idempotent; by one thread.
  void stop() {
    if (!thread_.joinable()) return;
    want(ending_);
    thread_.join();
  }

 private:
  void want(char& what) {
    {
      std::lock_guard lock(mutex_);
      what = 1;
    }
    changed_.notify_one();
  }

  void run() {
    for (;;) {
      uint32_t which = 0;
      {
        std::unique_lock lock(mutex_);
        const auto next = [this] {
          return uint32_t(std::find(wanted_.begin(), wanted_.end(), 1) - wanted_.begin());
        };
        changed_.wait(lock, [&] { return next() < calls_.size() || ending_; });
        if (ending_) return;
        which = next();
        wanted_[which] = 0;
      }
      calls_[which]();
    }
  }

  const std::vector<std::function<void()>> calls_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::vector<char> wanted_;  // flags
  char ending_ = 0;
  std::thread thread_;  // last: it begins when all else is there
};

}  // namespace starling
