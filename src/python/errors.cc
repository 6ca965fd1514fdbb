// Statuses as the exceptions of starling.errors; what threads do when the interpreter ends.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "python/bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace starling::python {
namespace {

// State of the interpreter, which is one a process. Set by atexit, before Python is taken down.
struct Ending {
  std::atomic<bool> begun{false};
  std::atomic<std::thread::id> by{};
  std::atomic<int> callbacks_running{0};
};

Ending& ending() {
  static Ending state;
  return state;
}

// After this no thread of the library enters Python again.
void end_callbacks() {
  ending().by.store(std::this_thread::get_id());
  ending().begun.store(true);
  const WithoutGil waiting;
  while (ending().callbacks_running.load() != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace

WithoutGil::~WithoutGil() {
  while (ending().begun.load() && ending().by.load() != std::this_thread::get_id()) pause();
  PyEval_RestoreThread(state_);
}

void check_signals() {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

void raise(starling_status status, const char* message) {
  const nb::object error = nb::module_::import_("starling.errors").attr("from_status")(int(status), message);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

void check(starling_status status) {
  if (status != STARLING_SUCCESS) raise(status, starling_last_error());
}

struct PythonCallback {
  nb::object function;
};

PythonCallback* make_callback(nb::object function) { return new PythonCallback{std::move(function)}; }

void drop_callback(PythonCallback* callback) { delete callback; }

// On the library's callback thread. An exception is printed (sys.unraisablehook), it has no caller.
void run_python_callback(starling_status status, const char* message, void* callback) {
  Ending& state = ending();
  ++state.callbacks_running;
  // Counted first, then looked: end_callbacks() sets first and then reads the count.
  if (!state.begun.load()) {
    const nb::gil_scoped_acquire gil;
    PythonCallback* call = static_cast<PythonCallback*>(callback);
    try {
      call->function(int(status), message);
    } catch (nb::python_error& error) {
      error.discard_as_unraisable(call->function);
    } catch (const std::exception& error) {
      PySys_WriteStderr("starling: a callback failed: %s\n", error.what());
    }
    drop_callback(call);
  }
  --state.callbacks_running;
}

}  // namespace starling::python

void bind_errors(nb::module_& m) {
  m.def("version", &starling_version);
  m.def("status_name", [](int status) { return starling_status_name(starling_status(status)); }, "status"_a);
  m.def("end_callbacks", &starling::python::end_callbacks,
        "No callback enters Python after this; called by atexit.");
}
