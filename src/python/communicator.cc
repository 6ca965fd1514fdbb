// starling_comm, and the operations on it.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include <starling/plan.h>

#include "python/bindings.h"
#include "python/buffer.h"
#include "python/operation.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace starling::python {

starling_comm* Communicator::get() const {
  if (handle == nullptr) raise(STARLING_INVALID_ARGUMENT, "the communicator was destroyed; make a new one");
  return handle;
}

Communicator::~Communicator() {
  if (handle == nullptr || made_in != getpid()) return;
  const WithoutGil waiting;
  starling_comm_destroy(handle);
}

namespace {

// A Python object with set(key, bytes) and get(key, timeout_s), as starling_store; and what ends the meeting:
// Ctrl-C, or what the object's methods raise.
struct Meeting {
  nb::object store;
  std::optional<nb::python_error> interruption;
};

int store_set(void* user, const char* key, const void* value, size_t bytes) {
  const nb::gil_scoped_acquire gil;
  auto* meeting = static_cast<Meeting*>(user);
  try {
    meeting->store.attr("set")(key, nb::bytes(value, bytes));
    return 0;
  } catch (nb::python_error& error) {
    meeting->interruption.emplace(std::move(error));
    return 1;
  }
}

int store_get(void* user, const char* key, void* value, size_t* bytes, int64_t timeout_ns) {
  const nb::gil_scoped_acquire gil;
  auto* meeting = static_cast<Meeting*>(user);
  try {
    const nb::object found = meeting->store.attr("get")(key, double(timeout_ns) * 1e-9);
    if (!nb::isinstance<nb::bytes>(found)) {
      PyErr_Format(PyExc_TypeError, "the store's get() returned %R for %s; return the bytes that were set",
                   found.ptr(), key);
      throw nb::python_error();
    }
    const nb::bytes text = nb::borrow<nb::bytes>(found);
    std::memcpy(value, text.c_str(), std::min(*bytes, text.size()));
    *bytes = text.size();
    return 0;
  } catch (nb::python_error& error) {
    if (error.matches(PyExc_TimeoutError)) return 1;
    meeting->interruption.emplace(std::move(error));
    return STARLING_STORE_LOST;
  }
}

int interrupted(void* user) {
  const nb::gil_scoped_acquire gil;
  auto* meeting = static_cast<Meeting*>(user);
  try {
    if (!meeting->interruption) check_signals();
  } catch (nb::python_error& error) {
    meeting->interruption.emplace(std::move(error));
  }
  return meeting->interruption.has_value();
}

void create(Communicator& comm, const Context& context, uint32_t rank, uint32_t size, const std::string& name,
            nb::object store, int64_t timeout_ns, int sm_free) {
  Communicator made(nullptr, context.use);
  starling_context* owner = context.get();
  Meeting meeting{std::move(store), std::nullopt};
  const starling_store functions{&meeting, store_set, store_get, nullptr, nullptr};
  starling_comm_options options{};
  options.struct_bytes = sizeof options;
  options.rank = rank;
  options.size = size;
  options.name = name.c_str();
  options.store = meeting.store.is_none() ? nullptr : &functions;
  options.timeout_ns = timeout_ns;
  options.interrupted = interrupted;
  options.interrupted_user = &meeting;
  options.sm_free = starling_sm_free(sm_free);
  starling_status status;
  {
    const WithoutGil free;
    status = starling_comm_create(owner, &options, &made.handle);
  }
  if (meeting.interruption) throw std::move(*meeting.interruption);
  check(status);
  new (&comm) Communicator(std::move(made));
}

void decline(uint32_t rank, uint32_t size, const std::string& name, nb::object store,
             const std::string& reason) {
  Meeting meeting{std::move(store), std::nullopt};
  const starling_store functions{&meeting, store_set, store_get, nullptr, nullptr};
  starling_comm_options options{};
  options.struct_bytes = sizeof options;
  options.rank = rank;
  options.size = size;
  options.name = name.c_str();
  options.store = &functions;
  const starling_status status = starling_comm_decline(&options, reason.c_str());
  if (meeting.interruption) throw std::move(*meeting.interruption);
  check(status);
}

// None where this rank has no part.
std::optional<Communicator> child_of(const Communicator& parent, starling_status status,
                                     starling_comm* child) {
  check(status);
  if (child == nullptr) return std::nullopt;
  return Communicator(child, parent.use);
}

std::optional<Communicator> split(const Communicator& comm, int color, int key) {
  starling_comm* parent = comm.get();
  starling_comm* child = nullptr;
  starling_status status;
  {
    const WithoutGil meeting;
    status = starling_comm_split(parent, color, key, &child);
  }
  return child_of(comm, status, child);
}

std::optional<Communicator> subgroup(const Communicator& comm, const std::vector<uint32_t>& ranks,
                                     const std::string& name) {
  starling_comm* child = nullptr;
  static const uint32_t kNobody = 0;
  const starling_status status = starling_comm_subgroup(comm.get(), ranks.empty() ? &kNobody : ranks.data(),
                                                        uint32_t(ranks.size()), name.c_str(), &child);
  return child_of(comm, status, child);
}

void destroy(Communicator& comm) {
  if (comm.handle == nullptr) return;
  starling_comm* handle = comm.handle;
  comm.handle = nullptr;
  starling_status status;
  {
    const WithoutGil waiting;
    status = starling_comm_destroy(handle);
  }
  check(status);
}

// Status and message of the first failure; (0, "") if there is none.
nb::tuple error(const Communicator& comm) {
  const starling_status status = starling_comm_error(comm.get());
  return nb::make_tuple(int(status), status == STARLING_SUCCESS ? "" : starling_last_error());
}

// Keeps the GIL: a submission never waits for another rank, and giving the GIL up may cost milliseconds. On a
// stream it may wait for room in the launch queue.
Request submit_operation(const Communicator& comm, starling_operation op, nb::object callback) {
  starling_comm* handle = comm.get();
  PythonCallback* python_callback = nullptr;
  if (!callback.is_none()) {
    op.callback = run_python_callback;
    op.user = python_callback = make_callback(std::move(callback));
  }
  Request request(comm.use);
  starling_status status;
  if (op.start == STARLING_START_NOW) {
    status = starling_submit(handle, &op, &request.handle);
  } else {
    const WithoutGil waiting;
    status = starling_submit(handle, &op, &request.handle);
  }
  if (status != STARLING_SUCCESS && python_callback != nullptr) drop_callback(python_callback);
  check(status);
  return request;
}

Request submit(const Communicator& comm, const Call& call, nb::object callback) {
  starling_comm* handle = comm.get();
  return submit_operation(
      comm, operation_of(call, starling_comm_rank(handle), starling_comm_size(handle), comm.use->on_gpu),
      std::move(callback));
}

Call make_call(int kind, nb::object input, nb::object output, std::optional<std::string> data_type,
               int reduce_op, double scalar, int root, std::optional<std::string> lane, int priority,
               int64_t timeout_ns, std::optional<std::string> algorithm) {
  Call call;
  call.kind = kind;
  call.input = std::move(input);
  call.output = std::move(output);
  call.data_type = std::move(data_type);
  call.reduce_op = reduce_op;
  call.scalar = scalar;
  call.root = root;
  if (lane && lane->find('\0') != std::string::npos)  // in C the name would end there, and be another's
    raise(STARLING_INVALID_ARGUMENT, "lane has a zero byte in its name; pass text without a zero byte");
  call.lane = std::move(lane);
  call.priority = priority;
  call.timeout_ns = timeout_ns;
  call.algorithm = std::move(algorithm);
  return call;
}

using Counts = std::optional<std::vector<size_t>>;

Request submit_collective(const Communicator& comm, int kind, nb::object input, nb::object output,
                          std::optional<std::string> data_type, int reduce_op, double scalar, int root,
                          std::optional<std::string> lane, int priority, int64_t timeout_ns,
                          std::optional<std::string> algorithm, nb::object callback, Counts input_counts,
                          Counts input_offsets, Counts output_counts, Counts output_offsets, int start,
                          uintptr_t stream) {
  Call call = make_call(kind, std::move(input), std::move(output), std::move(data_type), reduce_op, scalar,
                        root, std::move(lane), priority, timeout_ns, std::move(algorithm));
  call.input_counts = std::move(input_counts);
  call.input_offsets = std::move(input_offsets);
  call.output_counts = std::move(output_counts);
  call.output_offsets = std::move(output_offsets);
  call.start = start;
  call.stream = stream;
  return submit(comm, call, std::move(callback));
}

Request submit_custom(const Communicator& comm, const std::string& plan, uint32_t input_groups,
                      uint32_t output_groups, nb::object input, nb::object output,
                      std::optional<std::string> data_type, int reduce_op, double scalar,
                      std::optional<std::string> lane, int priority, int64_t timeout_ns, nb::object callback,
                      int start, uintptr_t stream) {
  Call call = make_call(STARLING_CUSTOM, std::move(input), std::move(output), std::move(data_type), reduce_op,
                        scalar, 0, std::move(lane), priority, timeout_ns, plan);
  call.start = start;
  call.stream = stream;
  return submit_operation(comm, custom_operation_of(call, input_groups, output_groups, comm.use->on_gpu),
                          std::move(callback));
}

void add_plan(const Communicator& comm, const std::string& text, uint64_t smallest_bytes,
              uint64_t largest_bytes) {
  check(starling_comm_add_plan(comm.get(), text.c_str(), smallest_bytes, largest_bytes));
}

uint32_t use_table(const Communicator& comm, const std::string& path) {
  uint32_t rows = 0;
  check(starling_comm_use_table(comm.get(), path.c_str(), &rows));
  return rows;
}

std::string topology(const Communicator& comm) {
  char* name = nullptr;
  check(starling_comm_topology(comm.get(), &name));
  std::string copy(name);
  starling_plan_free(name);
  return copy;
}

// Whether they are read where they lie, and two times in ns, 0 where none was taken: by slots, read.
std::tuple<bool, uint64_t, uint64_t> large_messages(const Communicator& comm) {
  starling_large_messages found{};
  found.struct_bytes = sizeof found;
  check(starling_comm_large_messages(comm.get(), &found));
  return {found.reads != 0, found.slots_ns, found.read_ns};
}

Request submit_message(const Communicator& comm, int kind, nb::object buffer, int peer, uint64_t tag,
                       std::optional<std::string> data_type, int priority, int64_t timeout_ns,
                       nb::object callback, int start, uintptr_t stream) {
  const bool sends = kind == STARLING_SEND;
  Call call =
      make_call(kind, sends ? buffer : nb::object(nb::none()), sends ? nb::object(nb::none()) : buffer,
                std::move(data_type), 0, 1, 0, std::nullopt, priority, timeout_ns, std::nullopt);
  call.peer = peer;
  call.tag = tag;
  call.start = start;
  call.stream = stream;
  return submit(comm, call, std::move(callback));
}

// Sends and receives of one stream: kind, buffer, peer, tag of each. Their requests; with the status and
// message of a call that was wrong, None for those that were not submitted.
nb::tuple submit_messages(const Communicator& comm, nb::list messages, int64_t timeout_ns, int start,
                          uintptr_t stream) {
  starling_comm* handle = comm.get();
  std::vector<Call> calls;  // they own what the operations point to
  std::vector<starling_operation> operations;
  for (nb::handle message : messages) {
    std::tuple<int, nb::object, int, uint64_t> fields;
    if (!nb::try_cast(message, fields)) throw nb::type_error("a message's peer or tag is no such number");
    const auto& [kind, buffer, peer, tag] = fields;
    const bool sends = kind == STARLING_SEND;
    Call& call = calls.emplace_back(make_call(kind, sends ? buffer : nb::object(nb::none()),
                                              sends ? nb::object(nb::none()) : buffer, std::nullopt, 0, 1, 0,
                                              std::nullopt, 0, timeout_ns, std::nullopt));
    call.peer = peer;
    call.tag = tag;
    call.start = start;
    call.stream = stream;
    operations.push_back(
        operation_of(call, starling_comm_rank(handle), starling_comm_size(handle), comm.use->on_gpu));
  }
  std::vector<starling_request*> handles(operations.size());
  starling_status status;
  {
    const WithoutGil waiting;
    status = starling_submit_together(handle, operations.data(), operations.size(), handles.data());
  }
  const std::string text = status == STARLING_SUCCESS ? "" : starling_last_error();
  nb::list requests;
  for (starling_request* one : handles) {
    if (one == nullptr) {
      requests.append(nb::none());
      continue;
    }
    Request request(comm.use);
    request.handle = one;
    requests.append(nb::cast(std::move(request)));
  }
  return nb::make_tuple(requests, int(status), text);
}

void register_collective(const Communicator& comm, int64_t id, const std::vector<uint32_t>& devices, int kind,
                         size_t count, const std::string& data_type, int reduce_op, double scalar, int root,
                         int priority, int64_t timeout_ns) {
  starling_operation shape{};
  shape.struct_bytes = sizeof shape;
  shape.kind = starling_collective(kind);
  shape.count = count;
  shape.data_type = data_type_named(data_type.c_str());
  shape.reduce_op = starling_reduce_op(reduce_op);
  shape.scalar = scalar;
  shape.root = root;
  shape.priority = priority;
  shape.timeout_ns = timeout_ns;
  check(starling_register(comm.get(), id, devices.data(), uint32_t(devices.size()), &shape));
}

// `rank` and `size` are those in the collective's device set; `count` is what it was registered with.
void run_registered(const Communicator& comm, int64_t id, int kind, nb::object input, nb::object output,
                    const std::string& data_type, int root, uint32_t rank, uint32_t size, size_t count,
                    nb::object callback) {
  const Call call = make_call(kind, std::move(input), std::move(output), data_type, 0, 1, root, std::nullopt,
                              0, 0, std::nullopt);
  const starling_operation op = operation_of(call, rank, size, comm.use->on_gpu);
  if (op.count != count && kind != STARLING_BARRIER)
    raise(STARLING_INVALID_ARGUMENT,
          ("collective " + std::to_string(id) + " was registered with count " + std::to_string(count) +
           ", these buffers hold " + std::to_string(op.count) + "; pass buffers of the registered count")
              .c_str());
  PythonCallback* python_callback = make_callback(std::move(callback));
  const starling_status status =
      starling_run(comm.get(), id, op.input, op.output, run_python_callback, python_callback);
  if (status != STARLING_SUCCESS) drop_callback(python_callback);
  check(status);
}

void bind_calls(nb::class_<Communicator>& c) {
  c.def("submit", &submit_collective, "kind"_a, "input"_a.none(), "output"_a.none(), "data_type"_a.none(),
        "reduce_op"_a = 0, "scalar"_a = 1.0, "root"_a = 0, "lane"_a = nb::none(), "priority"_a = 0,
        "timeout_ns"_a = 0, "algorithm"_a = nb::none(), "callback"_a = nb::none(),
        "input_counts"_a = nb::none(), "input_offsets"_a = nb::none(), "output_counts"_a = nb::none(),
        "output_offsets"_a = nb::none(), "start"_a = 0, "stream"_a = 0);
  c.def("submit_custom", &submit_custom, "plan"_a, "input_groups"_a, "output_groups"_a, "input"_a,
        "output"_a.none(), "data_type"_a = nb::none(), "reduce_op"_a = 0, "scalar"_a = 1.0,
        "lane"_a = nb::none(), "priority"_a = 0, "timeout_ns"_a = 0, "callback"_a = nb::none(), "start"_a = 0,
        "stream"_a = 0);
  c.def("add_plan", &add_plan, "text"_a, "smallest_bytes"_a, "largest_bytes"_a);
  c.def("submit_messages", &submit_messages, "messages"_a, "timeout_ns"_a, "start"_a, "stream"_a);
  c.def("submit_message", &submit_message, "kind"_a, "buffer"_a.none(), "peer"_a, "tag"_a,
        "data_type"_a = nb::none(), "priority"_a = 0, "timeout_ns"_a = 0, "callback"_a = nb::none(),
        "start"_a = 0, "stream"_a = 0);
  c.def("register", &register_collective, "id"_a, "devices"_a, "kind"_a, "count"_a, "data_type"_a,
        "reduce_op"_a, "scalar"_a, "root"_a, "priority"_a, "timeout_ns"_a);
  c.def("run", &run_registered, "id"_a, "kind"_a, "input"_a.none(), "output"_a.none(), "data_type"_a,
        "root"_a, "rank"_a, "size"_a, "count"_a, "callback"_a);
}

}  // namespace
}  // namespace starling::python

void bind_communicator(nb::module_& m) {
  namespace py = starling::python;
  nb::class_<py::Communicator> c(m, "Communicator");
  c.def("__init__", &py::create, "context"_a, "rank"_a, "size"_a, "name"_a, "store"_a.none(), "timeout_ns"_a,
        "sm_free"_a = 0)
      .def_prop_ro("rank", [](const py::Communicator& comm) { return starling_comm_rank(comm.get()); })
      .def_prop_ro("size", [](const py::Communicator& comm) { return starling_comm_size(comm.get()); })
      .def("split", &py::split, "color"_a, "key"_a)
      .def("subgroup", &py::subgroup, "ranks"_a, "name"_a)
      .def(
          "abort",
          [](const py::Communicator& comm, const std::string& reason) {
            py::check(starling_comm_abort(comm.get(), reason.c_str()));
          },
          "reason"_a)
      .def_prop_ro("topology", &py::topology)
      .def_prop_ro("sm_free",
                   [](const py::Communicator& comm) { return int(starling_comm_sm_free(comm.get())); })
      .def_prop_ro("large_messages", &py::large_messages)
      .def("use_table", &py::use_table, "path"_a)
      .def("error", &py::error)
      .def(
          "set_timeout",
          [](const py::Communicator& comm, int64_t timeout_ns) {
            py::check(starling_comm_set_timeout(comm.get(), timeout_ns));
          },
          "timeout_ns"_a)
      .def("destroy", &py::destroy);
  m.def("decline", &py::decline, "rank"_a, "size"_a, "name"_a, "store"_a, "reason"_a);
  py::bind_calls(c);
}
