#include "backend.h"

#include <algorithm>
#include <utility>

#include <c10/util/Exception.h>

#include "errors.h"
#include "lane.h"

namespace starling::torch_adapter {

Backend::Backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                 c10::intrusive_ptr<BackendOptions> options)
    : c10d::Backend(rank, size), options_(std::move(options)) {
  communicator_ = make_communicator({store, rank, size, options_->group_name, options_->timeout});
}

Backend::~Backend() = default;

std::shared_ptr<Communicator> Backend::communicator() const {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(communicator_ != nullptr, "starling: process group '", options_->group_name,
              "' was shut down; make a new one before calling collectives");
  return communicator_;
}

// ---- issuing ----

Backend::Issue Backend::begin_work(const WorkDescription& description) {
  const std::shared_ptr<Communicator> communicator = this->communicator();
  WorkDescription numbered = description;
  numbered.sequence = ++sequence_;
  const std::lock_guard lock(mutex_);
  if (coalescing_) {
    coalescing_->add_outputs(description.outputs);
    return {coalescing_, true};
  }
  return {c10::make_intrusive<Work>(getRank(), numbered, communicator->in_flight()), false};
}

void Backend::submit(Work& work, starling_operation operation) {
  const Lane& lane = current_lane();
  const bool pairwise = operation.kind == STARLING_SEND || operation.kind == STARLING_RECV;
  // Each (source, destination, tag) is a lane already.
  if (!pairwise && lane.name) operation.lane = lane.name->c_str();
  if (lane.algorithm) operation.algorithm = lane.algorithm->c_str();
  operation.priority = lane.priority;
  const std::shared_ptr<Communicator> communicator = this->communicator();
  if (!options_->negotiate || pairwise) {
    work.submit(communicator->get(), operation);
    return;
  }
  operation.waited = 0;  // the library's callback thread will submit it
  // The operation is submitted later, when the caller's lane may be gone.
  auto held = std::make_shared<Lane>(lane);
  if (held->name) operation.lane = held->name->c_str();
  if (held->algorithm) operation.algorithm = held->algorithm->c_str();
  work.keep(std::shared_ptr<void>(held));
  work.submit(communicator->get(), operation, held->name.value_or("") + "/ready");
}

// Operations never block when they are issued, so a block submits as it goes; it only completes as one.
void Backend::startCoalescing() {
  const std::shared_ptr<Communicator> communicator = this->communicator();
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(!coalescing_, "starling: coalescing blocks do not nest");
  coalescing_ = c10::make_intrusive<Work>(
      getRank(), WorkDescription{c10d::OpType::COALESCED, "starling:coalesced", sequence_, {}, {}},
      communicator->in_flight());
}

c10::intrusive_ptr<c10d::Work> Backend::endCoalescing() {
  c10::intrusive_ptr<Work> work;
  {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK(coalescing_, "starling: endCoalescing without startCoalescing");
    work = std::move(coalescing_);
    coalescing_.reset();
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
  child->group_name = options ? options->group_name : options_->group_name + ":split";
  child->group_desc = options ? options->group_desc : "";
  for (const int rank : ranks) {
    const auto& global = options_->global_ranks_in_group;
    child->global_ranks_in_group.push_back(global.empty() ? static_cast<std::uint64_t>(rank)
                                                          : global.at(static_cast<std::size_t>(rank)));
  }
  return c10::make_intrusive<Backend>(store->clone(), static_cast<int>(me - ranks.begin()),
                                      static_cast<int>(ranks.size()), std::move(child));
}

void Backend::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
  communicator()->set_timeout(timeout);
}

void Backend::abort() {
  std::shared_ptr<Communicator> aborted;
  {
    const std::lock_guard lock(mutex_);
    aborted = communicator_;
  }
  if (aborted) aborted->abort("the process group was aborted on rank " + std::to_string(getRank()));
}

// Outside the lock: destroying a communicator waits for what is under way.
void Backend::shutdown() {
  std::shared_ptr<Communicator> ending;
  {
    const std::lock_guard lock(mutex_);
    ending.swap(communicator_);
  }
}

c10d::ErrorType Backend::getError() {
  switch (starling_comm_error(communicator()->get())) {
    case STARLING_SUCCESS: return c10d::ErrorType::SUCCESS;
    case STARLING_TIMEOUT: return c10d::ErrorType::TIMEOUT;
    case STARLING_PEER_FAILED: return c10d::ErrorType::REMOTE_ERROR;
    default: return c10d::ErrorType::COMM_ERROR;
  }
}

}  // namespace starling::torch_adapter
