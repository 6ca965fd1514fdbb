// The Python module: bindings with torch's own pybind11, as c10d::Backend is bound by it.
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include "backend.h"
#include "errors.h"
#include "future_threads.h"
#include "lane.h"

namespace py = pybind11;

namespace starling::torch_adapter {
namespace {

using BackendClass = py::class_<Backend, c10d::Backend, c10::intrusive_ptr<Backend>>;
using OptionsClass = py::class_<BackendOptions, c10d::Backend::Options, c10::intrusive_ptr<BackendOptions>>;

c10::intrusive_ptr<Backend> create_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                           const c10::intrusive_ptr<BackendOptions>& options) {
  return c10::make_intrusive<Backend>(store, rank, size, options);
}

// Waits until the rank's daemons have nothing resident; parked operations stay parked.
void synchronize() {
  for (const auto& context : live_contexts()) {
    check(starling_context_synchronize(context->get()), "device synchronization");
  }
}

// One dictionary a context (a rank).
std::vector<py::dict> statistics() {
  std::vector<py::dict> all;
  for (const auto& context : live_contexts()) {
    starling_statistics counted{};
    counted.struct_bytes = sizeof(counted);
    check(starling_context_statistics(context->get(), &counted), "reading the statistics");
    py::dict named;
#define STARLING_NAMED(field) named[#field] = counted.field
    STARLING_NAMED(submissions);
    STARLING_NAMED(completions);
    STARLING_NAMED(launches);
    STARLING_NAMED(quits_idle);
    STARLING_NAMED(quits_stuck);
    STARLING_NAMED(quits_drained);
    STARLING_NAMED(parks);
    STARLING_NAMED(resumes);
    STARLING_NAMED(context_saves);
    STARLING_NAMED(context_loads);
    STARLING_NAMED(instructions);
    STARLING_NAMED(queue_peak);
    STARLING_NAMED(lanes);
    STARLING_NAMED(lane_bytes);
    STARLING_NAMED(pool_slots);
    STARLING_NAMED(pool_slots_used);
#undef STARLING_NAMED
    all.push_back(std::move(named));
  }
  return all;
}

// (time_ns, sequence, detail, lane, block, event), oldest first, and the lanes' names by number.
std::pair<std::vector<py::tuple>, py::dict> trace(std::size_t most) {
  std::vector<py::tuple> records;
  py::dict names;
  for (const auto& context : live_contexts()) {
    std::vector<starling_trace_record> found(most);
    std::size_t count = most;
    check(starling_context_trace(context->get(), found.data(), &count), "reading the trace");
    for (std::size_t i = 0; i < count; ++i) {
      const starling_trace_record& record = found[i];
      records.push_back(py::make_tuple(record.time_ns, record.sequence, record.detail, record.lane,
                                       record.block, record.event));
      if (names.contains(py::int_(record.lane))) continue;
      char name[256] = "";
      if (starling_context_lane_name(context->get(), record.lane, name, sizeof name) == STARLING_SUCCESS) {
        names[py::int_(record.lane)] = std::string(name);
      }
    }
  }
  return {std::move(records), std::move(names)};
}

void bind_options(py::module_& module) {
  OptionsClass options(module, "Options");
  options
      .def(py::init([](bool negotiate, int sm_free, bool hold_streams) {
             auto made = c10::make_intrusive<BackendOptions>();
             made->negotiate = negotiate;
             made->sm_free = starling_sm_free(sm_free);
             made->hold_streams = hold_streams;
             return made;
           }),
           py::kw_only(), py::arg("negotiate") = false, py::arg("sm_free") = 0,
           py::arg("hold_streams") = false)
      .def_readwrite("negotiate", &BackendOptions::negotiate)
      .def_readwrite("hold_streams", &BackendOptions::hold_streams)
      .def("__deepcopy__", [](const BackendOptions& self,
                              const py::dict&) { return c10::make_intrusive<BackendOptions>(self); })
      .def("_describe_group", [](BackendOptions& self, std::string name,
                                 std::vector<std::uint64_t> global_ranks, std::chrono::milliseconds timeout) {
        self.group_name = std::move(name);
        self.global_ranks_in_group = std::move(global_ranks);
        self.timeout = timeout;
      });
}

// What torch binds for its own backends one by one: split_group() reads `options`, _set_pg_timeout() sets the
// timeout.
void bind_backend(py::module_& module) {
  const auto no_gil = py::call_guard<py::gil_scoped_release>();
  BackendClass(module, "Backend")
      .def_property_readonly("options", &Backend::getBackendOptions)
      .def("get_error", &Backend::getError, no_gil)
      .def("_check_error", &Backend::check_error, no_gil)
      .def("_daemon_blocks", &Backend::daemon_blocks, no_gil)
      .def("_add_plan", &Backend::add_plan, no_gil)
      .def("_run_plan", &Backend::run_plan, no_gil)
      .def("_set_default_timeout", &Backend::setTimeout, no_gil)
      .def("_set_sequence_number_for_group", &Backend::setSequenceNumberForGroup, no_gil)
      .def("_get_sequence_number_for_group", &Backend::getSequenceNumberForGroup, no_gil);
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  py::module_::import("torch._C._distributed_c10d");  // binds the base classes
  bind_options(module);
  bind_backend(module);
  const auto no_gil = py::call_guard<py::gil_scoped_release>();
  module.def("create_backend", create_backend, no_gil, py::arg("store"), py::arg("rank"), py::arg("size"),
             py::arg("options"));
  module.def(
      "enter_lane",
      [](std::optional<std::string> name, std::int32_t priority, std::optional<std::string> algorithm) {
        enter_lane({std::move(name), priority, std::move(algorithm)});
      },
      py::arg("name"), py::arg("priority"), py::arg("algorithm"));
  module.def("leave_lane", leave_lane);
  // torch binds its own maker in builds with NCCL only.
  module.def("premul_sum", [](double factor) { return make_premul_sum(factor); }, py::arg("factor"));
  module.def("synchronize", synchronize, no_gil);
  module.def("statistics", statistics);
  module.def("trace", trace, py::arg("most"));
  module.def(
      "close",
      [] {
        close_all_communicators();
        close_cpu_contexts();
        FutureThreads::of_process().stop();
      },
      no_gil);
  module.attr("torch_version") = TORCH_VERSION;
}

}  // namespace starling::torch_adapter
