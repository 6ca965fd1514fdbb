// Time of operations that follow each other with no Python in between: not even the GIL, for which ranks that
// are threads would wait.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/bindings.h"
#include "python/operation.h"

namespace nb = nanobind;
using namespace nanobind::literals;

namespace starling::python {
namespace {

// One operation of a communicator. `groups`: of a collective of the user's own, in its input and its output.
struct Step {
  starling_comm* comm;
  Call call;
  starling_operation operation;

  Step(const Communicator& on, int kind, nb::object input, nb::object output, int reduce_op,
       std::string algorithm, int start, uintptr_t stream,
       std::optional<std::pair<uint32_t, uint32_t>> groups)
      : comm(on.get()) {
    call.kind = kind;
    call.input = std::move(input);
    call.output = std::move(output);
    call.reduce_op = reduce_op;
    if (!algorithm.empty()) call.algorithm = std::move(algorithm);
    call.start = start;
    call.stream = stream;
    const bool on_gpu = on.use->on_gpu;
    operation = groups ? custom_operation_of(call, groups->first, groups->second, on_gpu)
                       : operation_of(call, starling_comm_rank(comm), starling_comm_size(comm), on_gpu);
    operation.waited = start == STARLING_START_NOW ? STARLING_WAITED : STARLING_NOT_WAITED;
  }
  Step(const Step&) = delete;  // the operation points into the call
  Step& operator=(const Step&) = delete;
};

// Each is waited for; on a stream, which keeps their order, the last alone.
starling_status run(const std::vector<const Step*>& steps, uint32_t times) {
  for (uint32_t k = 0; k < times; ++k) {
    for (const Step* step : steps) {
      const bool last = k + 1 == times && step == steps.back();
      const bool waits = last || step->operation.start == STARLING_START_NOW;
      starling_request* request = nullptr;
      starling_status status = starling_submit(step->comm, &step->operation, waits ? &request : nullptr);
      if (status == STARLING_SUCCESS && waits) status = starling_wait(request, -1);
      starling_request_free(request);
      if (status != STARLING_SUCCESS) return status;
    }
  }
  return STARLING_SUCCESS;
}

// Seconds that `calls` times all steps take. `warmups` of them, before, bring the ranks together.
double time_calls(uint32_t warmups, uint32_t calls, const std::vector<const Step*>& steps) {
  starling_status status;
  std::chrono::duration<double> taken{};
  {
    const WithoutGil waiting;
    status = run(steps, warmups);
    const auto begin = std::chrono::steady_clock::now();
    if (status == STARLING_SUCCESS) status = run(steps, calls);
    taken = std::chrono::steady_clock::now() - begin;
  }
  check(status);
  return taken.count();
}

}  // namespace
}  // namespace starling::python

void bind_timing(nb::module_& m) {
  namespace py = starling::python;
  nb::class_<py::Step>(m, "Step").def(
      nb::init<const py::Communicator&, int, nb::object, nb::object, int, std::string, int, uintptr_t,
               std::optional<std::pair<uint32_t, uint32_t>>>(),
      "comm"_a, "kind"_a, "input"_a.none(), "output"_a.none(), "reduce_op"_a = 0, "algorithm"_a = "",
      "start"_a = 0, "stream"_a = 0, "groups"_a = nb::none(), nb::keep_alive<1, 2>());
  m.def("time_calls", &py::time_calls, "warmups"_a, "calls"_a, "steps"_a);
}
