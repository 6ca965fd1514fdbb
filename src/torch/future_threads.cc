#include "future_threads.h"

#include <pthread.h>

#include <exception>
#include <system_error>
#include <utility>

#include <c10/util/Logging.h>

namespace starling::torch_adapter {

FutureThreads& FutureThreads::of_process() {
  static auto* const kThreads =
      new FutureThreads;  // never destroyed: stop() ends it, static destruction would be late
  return *kThreads;
}

void FutureThreads::run(std::function<void()> task) {
  std::unique_lock lock(mutex_);
  if (stopping_) {
    lock.unlock();
    task();
    return;
  }
  tasks_.push_back(std::move(task));
  // As many tasks as idle threads at most, so that no task waits behind one that waits for a collective.
  if (tasks_.size() > idle_) {
    try {
      threads_.emplace_back([this] {
        pthread_setname_np(pthread_self(), "st-futures");
        work();
      });
    } catch (const std::system_error&) {  // a limit of the system's: then here, where it may hold up others
      const auto here = std::move(tasks_.back());
      tasks_.pop_back();
      lock.unlock();
      here();
    }
  } else {
    wake_.notify_one();
  }
}

void FutureThreads::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_;
    wake_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    --idle_;
    if (tasks_.empty()) return;
    auto task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    try {
      task();
    } catch (const std::exception& error) {
      LOG(ERROR) << "starling: a callback of a future failed: " << error.what();
    }
    task = nullptr;  // what it keeps may end here, which takes the driver's time
    lock.lock();
  }
}

void FutureThreads::stop() {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    threads.swap(threads_);
    wake_.notify_all();
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace starling::torch_adapter
