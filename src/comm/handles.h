// The handles of one kind that the C API has given out: one that was destroyed is refused, and so is one that
// a forked child inherited: its threads are the parent's, and its shared memory is what the parent's peers
// see. Destruction waits for the calls that are inside.
#pragma once
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <string>
#include <thread>
#include <unordered_set>

#include "base/error.h"

namespace starling {

template <class T>
class Handles {
 public:
  static Handles& all() {
    static auto* handles = new Handles;  // threads may call while the process ends: never destroyed
    return *handles;
  }

  T* add(T* handle) {
    std::unique_lock lock(mutex_);
    live_.insert(handle);
    return handle;
  }
  // False: it was destroyed before.
  bool remove(const T* handle) {
    std::unique_lock lock(mutex_);
    return live_.erase(handle) != 0;
  }
  bool lives(const T* handle) {
    std::shared_lock lock(mutex_);
    return live_.count(handle) != 0;
  }

  // Counts a call on it, until leave(). Throws Error(invalid_argument) if it does not live.
  void enter(T* handle, const char* name) {
    std::shared_lock lock(mutex_);
    if (live_.count(handle) != 0) {
      // Under the lock: whoever removes the handle afterwards finds the call counted.
      handle->inside.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    if (inherited_.count(handle) != 0)
      throw Error(
          Code::invalid_argument, std::string(name) + " belongs to the process that this one was forked from",
          "create a context in the child after the fork, or start processes without fork (Python: start "
          "method 'spawn' or 'forkserver')");
    throw Error(Code::invalid_argument, std::string(name) + " was destroyed, or is no handle of this library",
                "use it only between its creation and its destruction");
  }

 private:
  // No other thread holds the lock at the fork. The child has another thread number, which may not unlock it:
  // it begins with a new one.
  Handles() {
    pthread_atfork([] { all().mutex_.lock(); }, [] { all().mutex_.unlock(); },
                   [] {
                     new (&all().mutex_) std::shared_mutex;
                     all().inherited_.merge(all().live_);
                   });
  }

  std::shared_mutex mutex_;  // guards all below
  std::unordered_set<const T*> live_;
  std::unordered_set<const T*> inherited_;  // of parents; never freed here, so no new one has their address
};

// A call that is inside of a living handle. T has `std::atomic<int> inside{0}`, the number of such calls.
template <class T>
class Living {
 public:
  Living(T* handle, const char* name) : handle_(handle) {
    if (handle == nullptr)
      throw Error(Code::invalid_argument, std::string(name) + " is a null pointer", "pass a valid one");
    Handles<T>::all().enter(handle, name);
  }
  // Release: all that the call did came before; pairs with the acquire in outlive_calls().
  ~Living() { handle_->inside.fetch_sub(1, std::memory_order_release); }
  Living(const Living&) = delete;
  Living& operator=(const Living&) = delete;
  T* operator->() const { return handle_; }

 private:
  T* handle_;
};

template <class T>
Living<T> living(T* handle, const char* name) {
  return {handle, name};
}

// Of a handle that was removed, so that no call comes any more: returns when none is inside.
template <class T>
void outlive_calls(const T* handle) {
  while (handle->inside.load(std::memory_order_acquire) != 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace starling
