// The handles of one kind that the C API has given out: one that was destroyed is refused, where it is not
// used at the very same time, and so is one that a forked child inherited: its threads are the parent's, and
// its shared memory is what the parent's peers see.
#pragma once
#include <pthread.h>

#include <mutex>
#include <new>
#include <shared_mutex>
#include <string>
#include <type_traits>
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

  // Throws Error(invalid_argument) if it does not live.
  void require(const T* handle, const char* name) {
    std::shared_lock lock(mutex_);
    if (live_.count(handle) != 0) return;
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

template <class T>
T& living(T* handle, const char* name) {
  if (handle == nullptr)
    throw Error(Code::invalid_argument, std::string(name) + " is a null pointer", "pass a valid one");
  Handles<std::remove_const_t<T>>::all().require(handle, name);
  return *handle;
}

}  // namespace starling
