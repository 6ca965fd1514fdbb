#include "backend.h"

#include <algorithm>
#include <utility>

#include <c10/util/Exception.h>

#include "errors.h"
#include "future_threads.h"
#include "lane.h"

namespace starling::torch_adapter {

Backend::Backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                 c10::intrusive_ptr<BackendOptions> options)
    : c10d::Backend(rank, size), options_(std::move(options)), store_(store) {
  communicator_ = make_communicator(
      {store, rank, size, options_->group_name, options_->timeout, "cpu", options_->global_ranks_in_group});
}

Backend::~Backend() = default;

std::shared_ptr<Communicator> Backend::communicator() const {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(communicator_ != nullptr, "starling: process group '", options_->group_name,
              "' was shut down; make a new one before calling collectives");
  return communicator_;
}

std::vector<std::shared_ptr<Communicator>> Backend::communicators() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Communicator>> all;
  if (communicator_) all.push_back(communicator_);
  for (const auto& [index, side] : cuda_sides_) all.push_back(side.communicator);
  return all;
}

std::vector<std::shared_ptr<LateLaunch>> Backend::late_launches() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<LateLaunch>> all;
  for (const auto& [index, side] : cuda_sides_) all.push_back(side.late);
  return all;
}

Backend::CudaSide Backend::cuda_side(c10::Device device) {
  communicator();  // not after shutdown
  const std::lock_guard joining(joining_);
  {
    const std::lock_guard lock(mutex_);
    const auto found = cuda_sides_.find(device.index());
    if (found != cuda_sides_.end()) return found->second;
  }
  const std::string name = "cuda:" + std::to_string(int(device.index()));
  CudaSide side;
  side.communicator =
      make_communicator({store_, getRank(), getSize(), options_->group_name + "/cuda", options_->timeout,
                         name, options_->global_ranks_in_group, options_->sm_free});
  side.streams = std::make_shared<GroupStreams>(side.communicator->context(), device, options_->hold_streams);
  side.late = std::make_shared<LateLaunch>(LateLaunch::Thread{
      [device] { c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).uncheckedSetDevice(device); },
      [](std::function<void()> task) { FutureThreads::of_process().run(std::move(task)); }});
  const std::lock_guard lock(mutex_);
  return cuda_sides_[device.index()] = side;
}

void Backend::eagerConnectSingleDevice(at::Device device) {
  if (device.is_cuda()) cuda_side(device);
}

c10::Device Backend::usual_device() const {
  const std::lock_guard lock(mutex_);
  if (cuda_sides_.empty()) return c10::kCPU;
  return {c10::kCUDA, cuda_sides_.begin()->first};
}

// ---- issuing ----

Backend::Issue Backend::begin_work(const WorkDescription& description, c10::Device device) {
  std::shared_ptr<Communicator> communicator = this->communicator();
  WorkDescription numbered = description;
  numbered.sequence = ++sequence_;
  if (device.is_cuda()) {
    const CudaSide side = cuda_side(device);
    side.late->flush();
    communicator = side.communicator;
    numbered.cuda = side.streams;
    numbered.captured = side.streams->captures(current_stream(device));
  }
  const std::lock_guard lock(mutex_);
  if (!coalesces_) return {c10::make_intrusive<Work>(getRank(), numbered, communicator->in_flight()), false};
  if (coalescing_) {
    TORCH_CHECK(
        coalescing_->cuda() == numbered.cuda && coalescing_->captured() == numbered.captured,
        "starling: a coalescing block is for tensors of one device, in a graph or not; this one mixes");
    coalescing_->add_outputs(description.outputs);
    return {coalescing_, true};
  }
  numbered.type = c10d::OpType::COALESCED;
  numbered.title = "starling:coalesced";
  coalescing_ = c10::make_intrusive<Work>(getRank(), numbered, communicator->in_flight());
  return {coalescing_, true};
}

void Backend::submit(Work& work, starling_operation operation) {
  const Lane& lane = current_lane();
  const bool pairwise = operation.kind == STARLING_SEND || operation.kind == STARLING_RECV;
  // Each (source, destination, tag) is a lane already.
  if (!pairwise && lane.name) operation.lane = lane.name->c_str();
  if (lane.algorithm) operation.algorithm = lane.algorithm->c_str();
  operation.priority = lane.priority;
  if (work.cuda()) {
    submit_on_stream(work, operation);
    return;
  }
  const std::shared_ptr<Communicator> communicator = this->communicator();
  if (!options_->negotiate || pairwise) {
    work.submit(communicator->get(), operation);
    return;
  }
  operation.waited = STARLING_NOT_WAITED;  // the library's callback thread will submit it
  // The operation is submitted later, when the caller's lane may be gone.
  auto held = std::make_shared<Lane>(lane);
  if (held->name) operation.lane = held->name->c_str();
  if (held->algorithm) operation.algorithm = held->algorithm->c_str();
  work.keep(std::shared_ptr<void>(held));
  work.submit(communicator->get(), operation, held->name.value_or("") + "/ready");
}

// An operation that its caller waits for at once (waited) runs in the caller's stream and holds it. Any other
// starts on a stream of the group's, after what is in the caller's now, and holds none, or one of the group's
// (HoldingStreams). One from any source is not on a stream: the caller's thread waits, for what writes its
// buffer and for the message. Of a send or receive it is not known yet whether its caller waits
// (late_launch.h), which does not matter in a capture; a coalescing block's begin together there, too.
void Backend::submit_on_stream(Work& work, starling_operation operation) {
  const GroupStreams& streams = *work.cuda();
  const CudaSide side = cuda_side(streams.device);
  const c10::Stream current = current_stream(streams.device);
  const bool held = operation.waited == STARLING_WAITED;
  const bool late = operation.waited == STARLING_PERHAPS_WAITED && (!work.captured() || work.coalesces());
  operation.waited = STARLING_NOT_WAITED;  // no caller runs the daemon of a GPU
  if (operation.kind == STARLING_RECV && operation.peer < 0) {
    TORCH_CHECK(!work.captured(), "starling: a graph cannot hold a receive from any source; name the source");
    synchronize_stream(current);
    work.wait_on_host();
  } else if (held) {
    operation.start = STARLING_START_HOLD_STREAM;
    operation.stream = native_handle(current);
  } else if (late && work.add_late(side.communicator->get(), operation)) {
    if (work.coalesces()) return;
    work.submit_late(side.communicator, side.late, streams.eager.of(operation.kind));
    if (streams.holding) side.late->flush();  // a device synchronization may follow
    return;
  } else {
    const bool pairwise = operation.kind == STARLING_SEND || operation.kind == STARLING_RECV;
    const bool in_order = !work.captured() && !pairwise && operation.lane == nullptr;
    const c10::Stream& own =
        in_order ? streams.in_order : (work.captured() ? streams.captured : streams.eager).of(operation.kind);
    if (in_order) work.begins_in_order(side.streams->begin_in_order());
    side.streams->order.after(own, current);
    operation.start = in_order && streams.holding ? STARLING_START_HOLD_STREAM : STARLING_START_ON_STREAM;
    operation.stream = native_handle(own);
  }
  work.submit(side.communicator->get(), operation);
}

// Operations never block when they are issued, so a block submits as it goes, and only completes as one; but
// sends and receives of CUDA begin together at its end.
void Backend::startCoalescing() {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(!coalesces_, "starling: coalescing blocks do not nest");
  coalesces_ = true;
}

c10::intrusive_ptr<c10d::Work> Backend::endCoalescing() {
  const std::shared_ptr<Communicator> communicator = this->communicator();
  c10::intrusive_ptr<Work> work;
  {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK(coalesces_, "starling: endCoalescing without startCoalescing");
    coalesces_ = false;
    work = std::move(coalescing_);
    coalescing_.reset();
  }
  if (!work)
    work = c10::make_intrusive<Work>(
        getRank(), WorkDescription{c10d::OpType::COALESCED, "starling:coalesced", sequence_, {}, {}, nullptr},
        communicator->in_flight());
  if (work->has_late() && work->captured()) {
    work->submit_captured(work->cuda()->captured.sends);
  } else if (work->has_late()) {
    const CudaSide side = cuda_side(work->cuda()->device);
    work->submit_late(side.communicator, side.late, side.streams->eager.sends);
    if (side.streams->holding) side.late->flush();
  }
  work->launch();
  return work;
}

// ---- groups ----

// Called on every rank of the parent; ranks that are no part of the new group answer null.
c10::intrusive_ptr<c10d::Backend> Backend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                 const std::vector<int>& ranks,
                                                 const c10::intrusive_ptr<c10d::Backend::Options>& options) {
  const auto me = std::find(ranks.begin(), ranks.end(), getRank());
  if (me == ranks.end()) return nullptr;
  auto child = c10::make_intrusive<BackendOptions>(options ? options->timeout : options_->timeout);
  const auto* own = dynamic_cast<const BackendOptions*>(options.get());
  child->negotiate = own != nullptr ? own->negotiate : options_->negotiate;
  child->sm_free = own != nullptr ? own->sm_free : options_->sm_free;
  child->hold_streams = own != nullptr ? own->hold_streams : options_->hold_streams;
  child->group_name = options ? options->group_name : options_->group_name + ":split";
  child->group_desc = options ? options->group_desc : "";
  for (const int rank : ranks) {
    const auto& global = options_->global_ranks_in_group;
    child->global_ranks_in_group.push_back(global.empty() ? static_cast<std::uint64_t>(rank)
                                                          : global.at(static_cast<std::size_t>(rank)));
  }
  auto made = c10::make_intrusive<Backend>(store->clone(), static_cast<int>(me - ranks.begin()),
                                           static_cast<int>(ranks.size()), std::move(child));
  if (const c10::Device device = usual_device(); device.is_cuda()) made->eagerConnectSingleDevice(device);
  return made;
}

void Backend::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
  for (const auto& communicator : communicators()) communicator->set_timeout(timeout);
}

void Backend::abort() {
  for (const auto& communicator : communicators())
    communicator->abort("the process group was aborted on rank " + std::to_string(getRank()));
}

// Outside the lock: destroying a communicator waits for what is under way.
void Backend::shutdown() {
  for (const auto& late : late_launches()) late->flush();
  std::shared_ptr<Communicator> ending;
  std::map<c10::DeviceIndex, CudaSide> ending_sides;
  {
    const std::lock_guard lock(mutex_);
    ending.swap(communicator_);
    ending_sides.swap(cuda_sides_);
  }
}

c10d::ErrorType Backend::getError() {
  for (const auto& communicator : communicators()) {
    switch (starling_comm_error(communicator->get())) {
      case STARLING_SUCCESS: break;
      case STARLING_TIMEOUT: return c10d::ErrorType::TIMEOUT;
      case STARLING_PEER_FAILED: return c10d::ErrorType::REMOTE_ERROR;
      default: return c10d::ErrorType::COMM_ERROR;
    }
  }
  return c10d::ErrorType::SUCCESS;
}

void Backend::check_error() {
  communicator();  // not after shutdown
  for (const auto& communicator : communicators())
    check(starling_comm_error(communicator->get()), "process group '" + options_->group_name + "'");
}

}  // namespace starling::torch_adapter
