// Threads that complete futures. What users chain to a future is Python as a rule and may wait for another
// collective, which the library's callback thread must never do; so futures complete here, and a thread that
// waits is made up for by a new one.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace starling::torch_adapter {

class FutureThreads {
 public:
  static FutureThreads& of_process();

  // Runs `task` on a thread of its own or one that is idle.
  void run(std::function<void()> task);
  // Runs what is queued, then ends the threads; called once, before the interpreter goes.
  void stop();

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  std::vector<std::thread> threads_;
  std::size_t idle_ = 0;
  bool stopping_ = false;
};

}  // namespace starling::torch_adapter
