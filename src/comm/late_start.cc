#include "comm/late_start.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "base/thread.h"

namespace starling {
namespace {

constexpr long kLateNs = 50'000;  // a caller that waits at once is there within a few

void set(int timer, long ns) {
  const itimerspec in{{0, 0}, {0, ns}};
  timerfd_settime(timer, 0, &in, nullptr);
}

}  // namespace

void LateStart::begin() {
  if (thread_.joinable()) return;
  if (timer_ < 0) timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
  if (timer_ < 0)
    throw Error(Code::system, std::string("cannot make a timer: ") + std::strerror(errno),
                "allow this process more open files (ulimit -n)");
  thread_ = start_thread("st-late-start", [this] { run(); });
}

void LateStart::arm() {
  // Release: the submissions; pairs with the exchanges of run() and disarm(). Set already: its timer runs.
  if (!left_to_callers_.exchange(true)) set(timer_, kLateNs);
}

void LateStart::disarm() {
  // Acquire: pairs with the exchange in arm(); the submissions before it.
  if (!left_to_callers_.exchange(false)) return;
  set(timer_, 0);
  // Another thread has armed it between the two.
  if (left_to_callers_.load()) set(timer_, kLateNs);
}

void LateStart::run() {
  for (;;) {
    std::uint64_t times;
    if (read(timer_, &times, sizeof times) < 0 && errno != EINTR) return;
    if (ending_) return;
    if (left_to_callers_.exchange(false)) start_();
  }
}

void LateStart::end() {
  if (thread_.joinable()) {
    ending_ = true;
    set(timer_, 1);
    thread_.join();
  }
  if (timer_ >= 0) close(timer_);
  timer_ = -1;
}

}  // namespace starling
