// starling_request.
#include <algorithm>
#include <chrono>
#include <thread>

#include "python/bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace starling::python {
namespace {

constexpr int64_t kSliceNs = 50'000'000;  // Ctrl-C is looked at so often

// True when it has ended; false: not within timeout_ns (< 0: no limit). The operation's error is raised.
bool wait(const Request& request, int64_t timeout_ns) {
  for (int64_t waited = 0;;) {
    starling_status status = starling_test(request.handle);
    if (status == STARLING_IN_PROGRESS) {
      if (timeout_ns >= 0 && waited >= timeout_ns) return false;
      const int64_t slice = timeout_ns < 0 ? kSliceNs : std::min(kSliceNs, timeout_ns - waited);
      starling_status told = STARLING_TIMEOUT;
      {
        const WithoutGil waiting;
        if (request.use->enter()) {
          told = starling_wait(request.handle, slice);
          request.use->leave();
        } else {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));  // its destruction ends the request
        }
      }
      if (told == STARLING_INVALID_ARGUMENT) check(told);  // a forked child cannot wait for its parent's
      waited += slice;
      check_signals();
      status = starling_test(request.handle);
      if (status == STARLING_IN_PROGRESS) continue;
    }
    check(status);
    return true;
  }
}

}  // namespace

void ContextUse::end() {
  ending_.store(true);
  while (inside_.load() != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace starling::python

void bind_requests(nb::module_& m) {
  using starling::python::Request;
  nb::class_<Request>(m, "Request")
      .def("wait", &starling::python::wait, "timeout_ns"_a)
      .def("status", [](const Request& r) { return int(starling_test(r.handle)); })
      .def("check", [](const Request& r) { starling::python::check(starling_test(r.handle)); })
      .def(
          "wait_on_stream",
          [](const Request& r, uintptr_t stream) {
            starling_status status;
            {
              const starling::python::WithoutGil waiting;  // for room in the stream's launch queue
              status = starling_stream_wait(r.handle, reinterpret_cast<void*>(stream));
            }
            if (status != STARLING_IN_PROGRESS) starling::python::check(status);
          },
          "stream"_a)
      .def("source", [](const Request& r) { return starling_request_source(r.handle); });
}
