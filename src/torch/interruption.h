// Ctrl-C, and every other signal that Python has a handler for, while a rank waits in C++.
#pragma once

#include <chrono>
#include <exception>

namespace starling::torch_adapter {

// How long a wait may go without check_signals().
constexpr std::chrono::milliseconds kSignalsEvery(100);

// Python runs its handlers of signals on the main thread alone.
bool on_main_thread();

// Runs them, if it is the main thread; throws what they raise (KeyboardInterrupt).
void check_signals();

// For starling_comm_options: asked while a group is joined, keeps what a handler raised.
class Interruption {
 public:
  static int asked(void* interruption) noexcept;
  void rethrow() const {
    if (raised_) std::rethrow_exception(raised_);
  }

 private:
  std::exception_ptr raised_;
};

}  // namespace starling::torch_adapter
