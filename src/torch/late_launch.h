// Sends and receives of CUDA that their callers may be about to wait for: torch.distributed.send is isend and
// wait, and does not say so. One that is waited for when it is launched holds its stream and needs no daemon;
// so each is kept back until its caller waits, does anything else with the group, or has done neither
// for 50 us.
//
//   put ──▶ kept ── take() by the work's wait ──▶ launched, held
//                ── the next put, flush(), or the timer ──▶ launched, not held
//
// A launch is made under the lock: what comes after it in the same group is launched after it. What ends with
// it ends outside, and never on the timer's thread: it may need Python's lock, which a caller may hold.
#pragma once

#include <pthread.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

namespace starling::torch_adapter {

class LateLaunch {
 public:
  struct Launch {
    std::function<void(bool waited)> make;  // throws nothing
    std::function<void()> after;
  };
  struct Thread {
    std::function<void()> begin;  // on the timer's thread, first
    std::function<void(std::function<void()>)> elsewhere;  // runs it on another thread
  };

  explicit LateLaunch(Thread thread)
      : timer_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC)), about_thread_(std::move(thread)) {
    if (timer_ < 0)
      throw std::runtime_error("starling: cannot make a timer; allow more open files (ulimit -n)");
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "st-launch");
      run();
    });
  }
  ~LateLaunch() {
    flush();
    ending_ = true;
    set(1);
    thread_.join();
    close(timer_);
  }
  LateLaunch(const LateLaunch&) = delete;
  LateLaunch& operator=(const LateLaunch&) = delete;

  // `owner` is what take() will say.
  void put(const void* owner, Launch launch) {
    for (;;) {
      flush();
      const std::lock_guard lock(mutex_);
      if (owner_ != nullptr) continue;  // another thread's
      owner_ = owner;
      launch_ = std::move(launch);
      kept_ = true;
      set(kLateNs);
      return;
    }
  }

  // When it returns, `owner`'s launch has been made.
  void take(const void* owner, bool waited) {
    Launch made;
    {
      const std::lock_guard lock(mutex_);
      if (owner_ != owner) return;
      made = launch_kept(waited);
    }
    made.after();
  }

  // When it returns, what was kept has been launched, as not waited for.
  void flush() {
    if (!kept_) return;
    Launch made;
    {
      const std::lock_guard lock(mutex_);
      if (owner_ == nullptr) return;
      made = launch_kept(false);
    }
    made.after();
  }

 private:
  static constexpr long kLateNs = 50'000;  // a caller that waits at once is there within a few

  void set(long ns) const {
    const itimerspec in{{0, 0}, {0, ns}};
    timerfd_settime(timer_, 0, &in, nullptr);
  }

  Launch launch_kept(bool waited) {
    set(0);
    owner_ = nullptr;
    Launch launch = std::exchange(launch_, {});
    launch.make(waited);
    kept_ = false;
    return launch;
  }

  // A timer that has rung for one launch may find the next one kept: that is launched a little early.
  void run() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    about_thread_.begin();
    for (;;) {
      std::uint64_t times;
      if (read(timer_, &times, sizeof times) < 0 && errno != EINTR) return;
      if (ending_) return;
      Launch made;
      {
        const std::lock_guard lock(mutex_);
        if (owner_ == nullptr) continue;
        made = launch_kept(false);
      }
      about_thread_.elsewhere([made = std::move(made)] { made.after(); });
    }
  }

  std::mutex mutex_;
  const void* owner_ = nullptr;  // mutex_; null: nothing is kept
  Launch launch_;  // mutex_
  std::atomic<bool> kept_{false};  // a launch is kept, or being made
  std::atomic<bool> ending_{false};
  const int timer_;
  const Thread about_thread_;
  std::thread thread_;
};

}  // namespace starling::torch_adapter
