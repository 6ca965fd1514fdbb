// starling_context.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "python/bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace starling::python {

starling_context* Context::get() const {
  if (handle == nullptr) raise(STARLING_INVALID_ARGUMENT, "the context was destroyed; make a new one");
  return handle;
}

Context::~Context() {
  if (handle == nullptr || made_in != getpid()) return;
  const WithoutGil waiting;
  starling_context_destroy(handle);
}

namespace {

// Reads the fields that the dict names; a name that does not exist is an error.
starling_scheduling scheduling_of(const nb::dict& fields) {
  starling_scheduling s{};
  for (auto [key, value] : fields) {
    const std::string name = nb::cast<std::string>(key);
    if (name == "initial_budget_ns")
      s.initial_budget_ns = nb::cast<uint64_t>(value);
    else if (name == "minimum_budget_ns")
      s.minimum_budget_ns = nb::cast<uint64_t>(value);
    else if (name == "success_factor")
      s.success_factor = nb::cast<uint32_t>(value);
    else if (name == "position_shift")
      s.position_shift = nb::cast<uint32_t>(value);
    else if (name == "quit_period_ns")
      s.quit_period_ns = nb::cast<uint64_t>(value);
    else if (name == "residency_limit_ns")
      s.residency_limit_ns = nb::cast<uint64_t>(value);
    else if (name == "order")
      s.order = starling_order(nb::cast<int>(value));
    else if (name == "fixed")
      s.fixed = nb::cast<bool>(value);
    else if (name == "unbounded")
      s.unbounded = nb::cast<bool>(value);
    else if (name == "in_turn")
      s.in_turn = nb::cast<bool>(value);
    else
      raise(STARLING_INVALID_ARGUMENT, ("scheduling has no field " + name).c_str());
  }
  return s;
}

nb::dict scheduling_dict(const starling_scheduling& s) {
  nb::dict fields;
  fields["initial_budget_ns"] = s.initial_budget_ns;
  fields["minimum_budget_ns"] = s.minimum_budget_ns;
  fields["success_factor"] = s.success_factor;
  fields["position_shift"] = s.position_shift;
  fields["quit_period_ns"] = s.quit_period_ns;
  fields["residency_limit_ns"] = s.residency_limit_ns;
  fields["order"] = int(s.order);
  fields["fixed"] = s.fixed != 0;
  fields["unbounded"] = s.unbounded != 0;
  fields["in_turn"] = s.in_turn != 0;
  return fields;
}

void create(Context& context, uint32_t blocks, uint64_t arena_bytes, uint64_t pool_bytes,
            const nb::dict& scheduling, std::optional<std::string> completion_queue,
            const std::string& device) {
  starling_context_options options{};
  options.struct_bytes = sizeof options;
  options.blocks = blocks;
  options.arena_bytes = arena_bytes;
  options.pool_bytes = pool_bytes;
  options.scheduling = scheduling_of(scheduling);
  options.completion_queue = completion_queue ? completion_queue->c_str() : nullptr;
  options.device = device.c_str();
  new (&context) Context;
  context.use->on_gpu = device != "cpu";
  starling_status status;
  {
    const WithoutGil creating;
    status = starling_context_create(&options, &context.handle);
  }
  check(status);
}

void destroy(Context& context) {
  if (context.handle == nullptr) return;
  starling_status status;
  {
    const WithoutGil waiting;
    context.use->end();
    status = starling_context_destroy(context.handle);
  }
  check(status);
  context.handle = nullptr;
}

void synchronize(const Context& context) {
  starling_context* handle = context.get();
  starling_status status;
  {
    const WithoutGil waiting;
    status = starling_context_synchronize(handle);
  }
  check(status);
  check_signals();
}

nb::dict profile(const Context& context) {
  starling_context* handle = context.get();
  starling_scheduling chosen{};
  starling_status status;
  {
    const WithoutGil measuring;
    status = starling_context_profile(handle, &chosen);
  }
  check(status);
  return scheduling_dict(chosen);
}

nb::dict statistics(const Context& context) {
  starling_statistics s{};
  s.struct_bytes = sizeof s;
  check(starling_context_statistics(context.get(), &s));
  nb::dict fields;
  fields["submissions"] = s.submissions;
  fields["completions"] = s.completions;
  fields["launches"] = s.launches;
  fields["quits_idle"] = s.quits_idle;
  fields["quits_stuck"] = s.quits_stuck;
  fields["quits_drained"] = s.quits_drained;
  fields["parks"] = s.parks;
  fields["resumes"] = s.resumes;
  fields["context_saves"] = s.context_saves;
  fields["context_loads"] = s.context_loads;
  fields["instructions"] = s.instructions;
  fields["queue_peak"] = s.queue_peak;
  fields["lanes"] = s.lanes;
  fields["lane_bytes"] = s.lane_bytes;
  fields["pool_slots"] = s.pool_slots;
  fields["pool_slots_used"] = s.pool_slots_used;
  return fields;
}

// (time_ns, sequence, detail, lane, block, event), oldest first.
std::vector<std::tuple<uint64_t, uint64_t, uint64_t, uint32_t, uint32_t, uint32_t>> trace(
    const Context& context, size_t most) {
  std::vector<starling_trace_record> records(most);
  size_t count = most;
  check(starling_context_trace(context.get(), records.data(), &count));
  std::vector<std::tuple<uint64_t, uint64_t, uint64_t, uint32_t, uint32_t, uint32_t>> out;
  out.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const starling_trace_record& r = records[i];
    out.emplace_back(r.time_ns, r.sequence, r.detail, r.lane, r.block, r.event);
  }
  return out;
}

std::string lane_name(const Context& context, uint32_t lane) {
  char name[1024];
  check(starling_context_lane_name(context.get(), lane, name, sizeof name));
  return name;
}

}  // namespace
}  // namespace starling::python

void bind_context(nb::module_& m) {
  namespace py = starling::python;
  nb::class_<py::Context>(m, "Context")
      .def("__init__", &py::create, "blocks"_a, "arena_bytes"_a, "pool_bytes"_a, "scheduling"_a,
           "completion_queue"_a.none(), "device"_a = "cpu")
      .def_prop_ro("handle", [](const py::Context& c) { return reinterpret_cast<uintptr_t>(c.handle); })
      .def_prop_ro("blocks", [](const py::Context& c) { return starling_context_blocks(c.get()); })
      .def("destroy", &py::destroy)
      .def("synchronize", &py::synchronize)
      .def("profile", &py::profile)
      .def("statistics", &py::statistics)
      .def("trace", &py::trace, "most"_a)
      .def("lane_name", &py::lane_name, "lane"_a);
}
