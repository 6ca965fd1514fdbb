// The C API: checks what C cannot, and turns exceptions into statuses. The work is in the classes.
#include <starling/plan.h>
#include <starling/starling.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "base/env.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "comm/handles.h"
#include "comm/job_store.h"
#include "comm/profile.h"
#include "plan/text.h"

struct starling_context {
  explicit starling_context(const starling_context_options& options) : context(options) {}
  starling::Context context;
  std::atomic<int> communicators{0};  // those that are being made, too
  std::atomic<int> inside{0};
  std::mutex mutex;  // guards all below
  // Of joins that failed: what they hold tells the other ranks why, as long as this one lives.
  std::vector<std::unique_ptr<starling::Store>> failed_meetings;
};

struct starling_comm {
  starling_context* owner;
  std::unique_ptr<starling::Store> store;  // holds the rank's claim; null: none, of a split
  std::unique_ptr<starling::Communicator> comm;
  std::atomic<int> inside{0};
};

namespace {

using namespace starling;

template <class T>
T& required(T* pointer, const char* name) {
  if (pointer == nullptr)
    throw Error(Code::invalid_argument, std::string(name) + " is a null pointer", "pass a valid one");
  return *pointer;
}

template <class T>
T sized(const T* options, const char* name) {
  if (options == nullptr) return T{};
  if (options->struct_bytes != sizeof(T))
    throw Error(Code::invalid_argument, std::string(name) + " has another size than this library's",
                std::string("set struct_bytes to sizeof(") + name + ") and use this library's header");
  return *options;
}

// Of two threads that destroy one handle, the later one is told.
template <class T>
void remove_once(T* handle, const char* name) {
  if (!Handles<T>::all().remove(handle))
    throw Error(Code::invalid_argument, std::string(name) + " was destroyed by another thread",
                "destroy it once");
}

// A context is not destroyed while a communicator is being made.
class Making {
 public:
  explicit Making(std::atomic<int>& communicators) : communicators_(communicators) { ++communicators_; }
  ~Making() { --communicators_; }
  Making(const Making&) = delete;
  Making& operator=(const Making&) = delete;

 private:
  std::atomic<int>& communicators_;
};

// A list of ranks of the communicator. More than it has are refused before they are read: a count of -1, say.
std::vector<uint32_t> rank_list(const Communicator& comm, const uint32_t* ranks, uint32_t count,
                                const char* name) {
  required(ranks, name);
  if (count > comm.size())
    throw Error(Code::invalid_argument,
                std::to_string(count) + " ranks of a communicator that has " + std::to_string(comm.size()),
                "pass ranks of the parent, each once");
  return {ranks, ranks + count};
}

// One piece of memory for an operation: its handle and what the poller completes.
starling_request* handle_of(RequestPtr request, starling_context* context) {
  Request& self = *request;
  self.give_out(std::move(request), context);
  return reinterpret_cast<starling_request*>(&self);
}

Request* request_of(starling_request* handle) { return reinterpret_cast<Request*>(handle); }
const Request* request_of(const starling_request* handle) { return reinterpret_cast<const Request*>(handle); }

bool lives(const starling_comm* comm) { return comm != nullptr && Handles<starling_comm>::all().lives(comm); }

starling_comm* wrap(starling_context* owner, std::unique_ptr<Communicator> comm,
                    std::unique_ptr<Store> store = nullptr) {
  if (comm == nullptr) return nullptr;
  ++owner->communicators;
  return Handles<starling_comm>::all().add(new starling_comm{owner, std::move(store), std::move(comm), {}});
}

std::optional<SmFree> sm_free_of(starling_sm_free asked) {
  switch (asked) {
    case STARLING_SM_FREE_DEFAULT: return std::nullopt;
    case STARLING_SM_FREE_NEVER: return SmFree::kNever;
    case STARLING_SM_FREE_BY_SIZE: return SmFree::kBySize;
    case STARLING_SM_FREE_ALWAYS: return SmFree::kAlways;
  }
  throw Error(Code::invalid_argument, "sm_free " + std::to_string(int(asked)) + " does not exist",
              "use a value of starling_sm_free");
}

std::unique_ptr<Store> store_of(const starling_comm_options& options, Context& context) {
  if (options.store != nullptr) return user_store(*options.store);
  const std::string job = job_name();
  if (job.empty())
    throw Error(Code::invalid_argument, "no store, and no launcher that names the job",
                "pass a store, set STARLING_JOB to the same text on all ranks, or use torchrun or mpirun");
  return job_store(job, context.arena().name());
}

}  // namespace

extern "C" {

const char* starling_version(void) { return STARLING_VERSION_TEXT; }

starling_status starling_context_create(const starling_context_options* options, starling_context** context) {
  return guarded([&] {
    required(context, "context") = nullptr;
    *context = Handles<starling_context>::all().add(
        new starling_context(sized(options, "starling_context_options")));
  });
}

starling_status starling_context_destroy(starling_context* context) {
  return guarded([&] {
    {
      const auto use = living(context, "context");
      if (use->context.in_own_callback())
        throw Error(Code::invalid_argument, "a callback destroys the context whose thread it runs on",
                    "destroy the context on another thread; a callback may destroy communicators");
      if (use->communicators != 0)
        throw Error(Code::invalid_argument, "the context still has communicators",
                    "destroy its communicators first");
      remove_once(context, "context");
    }
    outlive_calls(context);
    delete context;
  });
}

uint32_t starling_context_blocks(const starling_context* context) {
  uint32_t blocks = 0;
  (void)guarded(
      [&] { blocks = living(const_cast<starling_context*>(context), "context")->context.block_count(); });
  return blocks;
}

starling_status starling_context_synchronize(starling_context* context) {
  return guarded([&] { living(context, "context")->context.synchronize(); });
}

starling_status starling_context_profile(starling_context* context, starling_scheduling* chosen) {
  return guarded([&] {
    const starling_scheduling found = profile_scheduling(living(context, "context")->context);
    if (chosen != nullptr) *chosen = found;
  });
}

starling_status starling_context_statistics(starling_context* context, starling_statistics* statistics) {
  return guarded([&] {
    required(statistics, "statistics") = sized(statistics, "starling_statistics");
    const size_t bytes = statistics->struct_bytes;
    *statistics = {};
    statistics->struct_bytes = bytes;
    living(context, "context")->context.statistics(*statistics);
  });
}

starling_status starling_context_trace(starling_context* context, starling_trace_record* records,
                                       size_t* count) {
  return guarded([&] {
    std::vector<starling_trace_record> all;
    living(context, "context")->context.trace(all);
    const size_t take = std::min(required(count, "count"), all.size());
    if (take > 0) std::copy(all.end() - ptrdiff_t(take), all.end(), &required(records, "records"));
    *count = take;
  });
}

starling_status starling_context_lane_name(starling_context* context, uint32_t lane, char* name,
                                           size_t name_bytes) {
  return guarded([&] {
    if (name_bytes == 0) throw Error(Code::invalid_argument, "name_bytes is 0", "pass room for the name");
    const std::string text = living(context, "context")->context.lane_name(lane);
    std::strncpy(&required(name, "name"), text.c_str(), name_bytes - 1);
    name[name_bytes - 1] = 0;
  });
}

starling_status starling_comm_create(starling_context* context, const starling_comm_options* options,
                                     starling_comm** comm) {
  return guarded([&] {
    required(comm, "comm") = nullptr;
    const auto use = living(context, "context");
    Context& joined = use->context;
    const Making making(use->communicators);
    const starling_comm_options o = sized(&required(options, "options"), "starling_comm_options");
    {
      std::lock_guard lock(context->mutex);
      context->failed_meetings.clear();  // a new attempt: what was said in the last one counts no more
    }
    std::unique_ptr<Store> store = store_of(o, joined);
    try {
      CommOptions joining{o.rank,       o.size,        o.name ? o.name : "",
                          o.timeout_ns, o.interrupted, o.interrupted_user};
      joining.sm_free = sm_free_of(o.sm_free);
      if (o.world_ranks != nullptr) joining.world_ranks.assign(o.world_ranks, o.world_ranks + o.size);
      auto made = Communicator::join(joined, joining, *store);
      *comm = wrap(context, std::move(made), std::move(store));
    } catch (...) {
      std::lock_guard lock(context->mutex);
      context->failed_meetings.push_back(std::move(store));
      throw;
    }
  });
}

starling_status starling_comm_decline(const starling_comm_options* options, const char* reason) {
  return guarded([&] {
    const starling_comm_options o = sized(&required(options, "options"), "starling_comm_options");
    if (o.store == nullptr)
      throw Error(Code::invalid_argument, "a rank without a context declines in a store of the caller's only",
                  "pass the store that the other ranks join in");
    const CommOptions declined{o.rank, o.size, o.name ? o.name : "", 0};
    decline_group(declined, *user_store(*o.store), reason ? reason : "no reason given");
  });
}

starling_status starling_comm_split(starling_comm* parent, int color, int key, starling_comm** child) {
  return guarded([&] {
    required(child, "child") = nullptr;
    const auto whole = living(parent, "parent");
    *child = wrap(whole->owner, whole->comm->split(color, key));
  });
}

starling_status starling_comm_subgroup(starling_comm* parent, const uint32_t* ranks, uint32_t count,
                                       const char* name, starling_comm** child) {
  return guarded([&] {
    required(child, "child") = nullptr;
    const auto whole = living(parent, "parent");
    const std::vector<uint32_t> list = rank_list(*whole->comm, ranks, count, "ranks");
    *child = wrap(whole->owner, whole->comm->subgroup(list, name ? name : ""));
  });
}

uint32_t starling_comm_rank(const starling_comm* comm) { return lives(comm) ? comm->comm->rank() : 0; }
uint32_t starling_comm_size(const starling_comm* comm) { return lives(comm) ? comm->comm->size() : 0; }
uint64_t starling_comm_id(const starling_comm* comm) { return lives(comm) ? comm->comm->id() : 0; }

starling_sm_free starling_comm_sm_free(const starling_comm* comm) {
  if (!lives(comm)) return STARLING_SM_FREE_DEFAULT;
  return starling_sm_free(STARLING_SM_FREE_NEVER + int(comm->comm->sm_free()));
}

starling_status starling_comm_abort(starling_comm* comm, const char* reason) {
  return guarded([&] { living(comm, "comm")->comm->abort(reason ? reason : "no reason given"); });
}

starling_status starling_comm_error(starling_comm* comm) {
  Fault fault;
  const starling_status status = guarded([&] { fault = living(comm, "comm")->comm->error(); });
  if (status != STARLING_SUCCESS || fault.kind == FaultKind::kNone) return status;
  return set_last_error(status_of(fault.kind), fault.text);
}

starling_status starling_comm_set_timeout(starling_comm* comm, int64_t timeout_ns) {
  return guarded([&] {
    if (timeout_ns <= 0)
      throw Error(Code::invalid_argument, "a timeout of " + std::to_string(timeout_ns) + " ns",
                  "pass a positive number of nanoseconds");
    living(comm, "comm")->comm->set_timeout(timeout_ns);
  });
}

starling_status starling_comm_destroy(starling_comm* comm) {
  return guarded([&] {
    starling_context* owner = nullptr;
    {
      const auto use = living(comm, "comm");
      remove_once(comm, "comm");
      owner = use->owner;
      use->comm->end_operations();  // a split may be waiting inside
    }
    outlive_calls(comm);
    delete comm;
    --owner->communicators;
  });
}

starling_status starling_submit(starling_comm* comm, const starling_operation* operation,
                                starling_request** request) {
  return guarded([&] {
    if (request != nullptr) *request = nullptr;
    const auto use = living(comm, "comm");
    RequestPtr submitted = use->comm->submit(required(operation, "operation"));
    if (request != nullptr) *request = handle_of(std::move(submitted), use->owner);
  });
}

starling_status starling_submit_together(starling_comm* comm, const starling_operation* operations,
                                         size_t count, starling_request** requests) {
  return guarded([&] {
    if (requests != nullptr) std::fill_n(requests, count, nullptr);
    const auto use = living(comm, "comm");
    std::vector<RequestPtr> submitted;
    const auto hand_out = [&] {
      for (size_t k = 0; requests != nullptr && k < submitted.size(); ++k)
        requests[k] = handle_of(std::move(submitted[k]), use->owner);
    };
    try {
      if (count > 0) use->comm->submit_together({&required(operations, "operations"), count}, submitted);
    } catch (...) {
      hand_out();
      throw;
    }
    hand_out();
  });
}

starling_status starling_wait(starling_request* request, int64_t timeout_ns) {
  bool done = false;
  const starling_status status = guarded([&] {
    const Request& r = required(request_of(request), "request");
    done = r.done();  // then its context may be gone
    if (!done) done = living(r.context(), "the request's context")->context.wait(r, timeout_ns);
  });
  if (status != STARLING_SUCCESS) return status;
  if (!done) return set_last_error(STARLING_TIMEOUT, "the operation is still under way");
  return starling_test(request);
}

starling_status starling_test(starling_request* request) {
  if (request == nullptr) return set_last_error(STARLING_INVALID_ARGUMENT, "request is a null pointer");
  const Request& r = *request_of(request);
  if (!r.done()) return STARLING_IN_PROGRESS;
  return r.status() == STARLING_SUCCESS ? STARLING_SUCCESS : set_last_error(r.status(), r.message());
}

starling_status starling_stream_wait(starling_request* request, void* stream) {
  bool waits = false;
  const starling_status status = guarded([&] {
    const Request& r = required(request_of(request), "request");
    if (!r.done() || r.captured())
      waits = living(r.context(), "the request's context")->context.wait_on_stream(r, stream);
  });
  return status != STARLING_SUCCESS || waits ? status : starling_test(request);
}

starling_status starling_stream_capturing(starling_context* context, void* stream, int32_t* capturing) {
  return guarded([&] {
    required(capturing, "capturing") = 0;
    *capturing = living(context, "context")->context.capture_of(stream).has_value();
  });
}

starling_status starling_context_try_buffer(starling_context* context, const void* buffer) {
  return guarded([&] {
    if (buffer == nullptr)
      throw Error(Code::invalid_argument, "buffer is a null pointer", "pass memory of the context's GPU");
    living(context, "context")->context.place().try_buffer(buffer);
  });
}

starling_status starling_stream_create(starling_context* context, int32_t urgent, void** stream) {
  return guarded([&] {
    required(stream, "stream") = nullptr;
    *stream = living(context, "context")->context.make_stream(urgent != 0);
  });
}

int32_t starling_request_source(const starling_request* request) {
  return request ? request_of(request)->source() : -1;
}

void starling_request_free(starling_request* request) {
  if (request != nullptr) request_of(request)->take_back();
}

starling_status starling_register(starling_comm* comm, int64_t id, const uint32_t* devices,
                                  uint32_t device_count, const starling_operation* shape) {
  return guarded([&] {
    const auto use = living(comm, "comm");
    use->comm->register_collective(id, rank_list(*use->comm, devices, device_count, "devices"),
                                   required(shape, "shape"));
  });
}

starling_status starling_comm_add_plan(starling_comm* comm, const char* text, uint64_t smallest_bytes,
                                       uint64_t largest_bytes) {
  return guarded([&] {
    auto plan = std::make_shared<const Plan>(plan_from_text(&required(text, "text")));
    living(comm, "comm")->comm->add_plan(std::move(plan), {smallest_bytes, largest_bytes});
  });
}

starling_status starling_comm_use_table(starling_comm* comm, const char* path, uint32_t* rows) {
  return guarded([&] {
    const uint32_t found = living(comm, "comm")->comm->use_table(ChoiceTable::load(&required(path, "path")));
    if (rows != nullptr) *rows = found;
  });
}

starling_status starling_comm_topology(starling_comm* comm, char** name) {
  return guarded([&] {
    char*& result = required(name, "name");
    result = nullptr;
    result = strdup(living(comm, "comm")->comm->topology().name().c_str());
    if (result == nullptr) throw Error(Code::system, "no memory for a name", "free some memory");
  });
}

starling_status starling_comm_large_messages(starling_comm* comm, starling_large_messages* found) {
  return guarded([&] {
    starling_large_messages& result = required(found, "found");
    sized(found, "starling_large_messages");
    const Communicator& group = *living(comm, "comm")->comm;
    const LargeMessageTimes times = group.large_message_times().value_or(LargeMessageTimes{});
    result.reads = group.reads_large_messages();
    result.slots_ns = times.slots_ns;
    result.read_ns = times.read_ns;
  });
}

starling_status starling_run(starling_comm* comm, int64_t id, const void* input, void* output,
                             starling_callback callback, void* user) {
  return guarded([&] { living(comm, "comm")->comm->run_registered(id, input, output, callback, user); });
}

}  // extern "C"
