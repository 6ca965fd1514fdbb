#include "communicator.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include <ATen/Functions.h>
#include <c10/util/Exception.h>
#include <c10/util/Logging.h>

#include "errors.h"
#include "interruption.h"

namespace starling::torch_adapter {
namespace {

// A group's timeout is meant for its operations. Ranks that still import PyTorch are late by seconds, and
// with a short one no group could be made on a loaded machine.
constexpr std::chrono::milliseconds kShortestJoining = std::chrono::seconds(60);

// A group that is torn down lets its operations finish for so long; the longer timeouts of training would
// make a program that forgot a receive hang for half an hour on its way out.
constexpr std::chrono::milliseconds kLongestGrace = std::chrono::seconds(30);

// At the end of the process nobody will ask for results any more, but a peer may still be receiving.
constexpr std::chrono::milliseconds kGraceAtExit = std::chrono::seconds(5);

// Those that may have to be closed at exit. One list, as groups are made by independent calls.
struct CommunicatorRegistry {
  std::mutex mutex;
  std::vector<std::weak_ptr<Communicator>> communicators;
};

CommunicatorRegistry& communicator_registry() {
  static auto* const kRegistry = new CommunicatorRegistry;  // never destroyed: used while the process exits
  return *kRegistry;
}

std::int64_t to_ns(std::chrono::milliseconds duration) { return std::chrono::nanoseconds(duration).count(); }

// A rank without a context tells the others, who would wait for it until the timeout.
ContextClaim claim_or_decline(const CommunicatorOptions& options) {
  try {
    return ContextClaim(options.device, options.name);
  } catch (const c10::Error& error) {
    const StoreView store(options.store);
    starling_comm_options declined{};
    declined.struct_bytes = sizeof(declined);
    declined.rank = static_cast<std::uint32_t>(options.rank);
    declined.size = static_cast<std::uint32_t>(options.size);
    declined.name = options.name.c_str();
    declined.store = store.get();
    if (starling_comm_decline(&declined, error.what_without_backtrace()) != STARLING_SUCCESS)
      LOG(WARNING) << "starling: the other ranks could not be told: " << starling_last_error();
    throw;
  }
}

// What torch allocates may be memory that other processes cannot open (expandable segments, cudaMallocAsync).
void try_allocator(starling_context* context, c10::Device device) {
  if (!device.is_cuda()) return;
  const at::Tensor any = at::empty({1}, at::TensorOptions().dtype(at::kByte).device(device));
  check(starling_context_try_buffer(context, any.data_ptr()), "looking at torch's memory");
}

}  // namespace

Communicator::Communicator(const CommunicatorOptions& options)
    : context_(claim_or_decline(options)), store_(options.store), timeout_(options.timeout) {
  starling_comm_options comm_options{};
  comm_options.struct_bytes = sizeof(comm_options);
  comm_options.rank = static_cast<std::uint32_t>(options.rank);
  comm_options.size = static_cast<std::uint32_t>(options.size);
  comm_options.name = options.name.c_str();
  comm_options.store = store_.get();
  const std::vector<std::uint32_t> world_ranks(options.global_ranks.begin(), options.global_ranks.end());
  if (world_ranks.size() == comm_options.size) comm_options.world_ranks = world_ranks.data();
  comm_options.sm_free = options.sm_free;
  comm_options.timeout_ns = to_ns(std::max(options.timeout, kShortestJoining));
  Interruption interruption;
  if (on_main_thread()) {
    comm_options.interrupted = Interruption::asked;
    comm_options.interrupted_user = &interruption;
  }
  try_allocator(context_.get(), c10::Device(options.device));
  const starling_status joined = starling_comm_create(context_.get(), &comm_options, &comm_);
  interruption.rethrow();
  check(joined, "joining process group '" + options.name + "'");
  check(starling_comm_set_timeout(comm_, to_ns(options.timeout)), "setting the timeout");
}

Communicator::~Communicator() { close(std::min(timeout_.load(), kLongestGrace)); }

void Communicator::close(std::chrono::milliseconds grace) noexcept {
  if (closed_.exchange(true)) return;
  if (!aborted_ && !in_flight_->wait_until_none(grace)) {
    abort("the process group was destroyed with operations under way");
  }
  if (starling_comm_destroy(comm_) != STARLING_SUCCESS) {
    LOG(WARNING) << "starling: a process group was not destroyed cleanly: " << starling_last_error();
  }
}

void Communicator::abort(const std::string& reason) noexcept {
  if (aborted_.exchange(true)) return;
  if (starling_comm_abort(comm_, reason.c_str()) != STARLING_SUCCESS) {
    LOG(WARNING) << "starling: aborting a process group failed: " << starling_last_error();
  }
}

void Communicator::set_timeout(std::chrono::milliseconds timeout) {
  timeout_ = timeout;
  check(starling_comm_set_timeout(comm_, to_ns(timeout)), "setting the timeout");
}

std::shared_ptr<Communicator> make_communicator(const CommunicatorOptions& options) {
  auto made = std::make_shared<Communicator>(options);
  const std::lock_guard lock(communicator_registry().mutex);
  auto& known = communicator_registry().communicators;
  std::erase_if(known, [](const std::weak_ptr<Communicator>& one) { return one.expired(); });
  known.push_back(made);
  return made;
}

void close_all_communicators() noexcept {
  std::vector<std::weak_ptr<Communicator>> known;
  {
    const std::lock_guard lock(communicator_registry().mutex);
    known = communicator_registry().communicators;
  }
  for (const auto& one : known) {
    if (const auto communicator = one.lock()) communicator->close(kGraceAtExit);
  }
}

}  // namespace starling::torch_adapter
