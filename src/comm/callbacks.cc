#include "comm/callbacks.h"

#include "base/thread.h"

namespace starling {

CallbackThread::~CallbackThread() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void CallbackThread::start() {
  std::lock_guard lock(mutex_);
  if (!thread_.joinable()) thread_ = start_thread("st-callbacks", [this] { run(); });
}

void CallbackThread::push(RequestPtr request) {
  std::lock_guard lock(mutex_);
  queue_.push_back(std::move(request));
  changed_.notify_one();
}

bool CallbackThread::runs_caller() {
  std::lock_guard lock(mutex_);
  return thread_.get_id() == std::this_thread::get_id();
}

void CallbackThread::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ending_ || !queue_.empty(); });
    if (queue_.empty()) return;
    RequestPtr request = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    request->run_callback();
    request.reset();
    lock.lock();
  }
}

}  // namespace starling
