// Rings the daemon for operations that are perhaps waited for, if nobody has waited for them soon.
//
// No thread is woken while callers do wait: a submission sets a timer of the kernel, a caller that begins to
// run the daemon stops it.
#pragma once
#include <atomic>
#include <functional>
#include <thread>

namespace starling {

class LateStart {
 public:
  // `start` runs on a thread of its own, without locks.
  explicit LateStart(std::function<void()> start) : start_(std::move(start)) {}
  ~LateStart() { end(); }
  LateStart(const LateStart&) = delete;
  LateStart& operator=(const LateStart&) = delete;

  // Before the first arm(), by who submits. Throws Error(system). Under the context's lock.
  void begin();
  // After the submission: `start` runs 50 us from now, unless somebody takes over. Under the context's lock.
  void arm();
  // By a caller, before it looks for submissions: it will run them, or ring.
  void take_over() {
    if (left_to_callers_.load(std::memory_order_relaxed)) disarm();
  }
  // From here on `start` does not run.
  void end();

 private:
  void run();
  void disarm();

  std::function<void()> start_;
  std::atomic<bool> left_to_callers_{false};
  std::atomic<bool> ending_{false};
  int timer_ = -1;
  std::thread thread_;
};

}  // namespace starling
