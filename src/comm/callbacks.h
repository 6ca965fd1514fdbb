// Runs the users' callbacks, in order of completion, on a thread of its own: a slow one holds up nobody but
// later callbacks, and one may submit again.
#pragma once
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "comm/request.h"

namespace starling {

class CallbackThread {
 public:
  CallbackThread() = default;
  ~CallbackThread();  // runs what is left

  // Before the first push(), by who submits: there an error can still be told. Throws Error(system).
  void start();
  void push(RequestPtr request);
  // Is the caller one of the callbacks?
  bool runs_caller();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<RequestPtr> queue_;
  bool ending_ = false;
  std::thread thread_;  // since start()
};

}  // namespace starling
