#include "interruption.h"

#include <unistd.h>

#include <torch/csrc/utils/pybind.h>

namespace starling::torch_adapter {

bool on_main_thread() {
  static thread_local const pid_t thread = gettid();
  return thread == getpid();
}

void check_signals() {
  if (!on_main_thread() || Py_IsInitialized() == 0) return;
  const pybind11::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
}

int Interruption::asked(void* interruption) noexcept {
  auto& raised = static_cast<Interruption*>(interruption)->raised_;
  try {
    if (!raised) check_signals();
  } catch (...) {
    raised = std::current_exception();
  }
  return raised ? 1 : 0;
}

}  // namespace starling::torch_adapter
