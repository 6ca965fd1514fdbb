// Sends and receives of a Work that are kept back until it is known whether their caller waits
// (late_launch.h).
#include <string>
#include <utility>
#include <vector>

#include <c10/util/Logging.h>

#include "work.h"
#include "work_operation.h"

namespace starling::torch_adapter {

bool Work::add_late(starling_comm* comm, const starling_operation& description) {
  const c10::Stream current = current_stream(cuda_->device);
  if (caller_ && *caller_ != current) return false;
  caller_ = current;
  Operation& operation = operations_.emplace_back();
  operation.work = this;
  operation.comm = comm;
  operation.description = description;
  if (!captured_) {
    operation.description.callback = on_done;
    operation.description.user = &operation;
  }
  kept_back_.push_back(&operation);
  return true;
}

void Work::submit_late(std::shared_ptr<Communicator> communicator, const std::shared_ptr<LateLaunch>& late,
                       const c10::Stream& own) {
  called_.emplace(cuda_->device).record(*caller_);
  unsettled_.fetch_add(1);
  late_ = late;
  const auto work = c10::intrusive_ptr<Work>::reclaim_copy(this);
  late->put(this, {[work, communicator = std::move(communicator), own](bool waited) {
                     work->launch_late(own, waited);
                   },
                   [work] { work->release_one(); }});
}

// One start kernel, as outside of captures; wait() brings gates (order_captured). They hold no stream: the
// next batch would stand behind them.
void Work::submit_captured(const c10::Stream& own) {
  cuda_->order.after(own, *caller_);
  enqueue_together(own, STARLING_START_ON_STREAM);
}

// Waited for, they hold the companion of the caller's stream: that stands behind it, so nothing that stands
// before or behind them there would not do so in the caller's own.
void Work::launch_late(const c10::Stream& own, bool waited) {
  try {
    const std::optional<c10::Stream> companion =
        waited ? cuda_->companion(native_handle(*caller_)) : std::nullopt;
    const c10::Stream& stream = companion ? *companion : own;
    called_->block(stream);
    enqueue_together(stream, companion ? STARLING_START_HOLD_STREAM : STARLING_START_ON_STREAM);
    if (!companion) return;
    cuda_->order.after(*caller_, stream);
    for (Operation* operation : kept_back_) operation->caller_stands = true;
  } catch (const std::exception& error) {
    LOG(ERROR) << title_ << " number " << sequence_ << " failed: " << error.what();
    const std::lock_guard lock(mutex_);
    if (!first_error_) first_error_ = std::current_exception();
  }
}

void Work::enqueue_together(const c10::Stream& stream, starling_start start) {
  std::vector<starling_operation> calls;
  for (Operation* operation : kept_back_) {
    operation->description.start = start;
    operation->description.stream = native_handle(stream);
    expect_end(*operation);
    calls.push_back(operation->description);
  }
  std::vector<starling_request*> requests(calls.size());
  starling_comm* const comm = kept_back_.front()->comm;
  const starling_status status = starling_submit_together(comm, calls.data(), calls.size(), requests.data());
  const std::string message = status == STARLING_SUCCESS ? "" : starling_last_error();
  for (std::size_t k = 0; k < requests.size(); ++k) {
    Operation& operation = *kept_back_[k];
    operation.request = requests[k];
    if (requests[k] != nullptr && (status == STARLING_SUCCESS || !captured_)) continue;
    operation.settled = true;
    unsettled_.fetch_sub(1);
    operation.alive.reset();
  }
  if (status != STARLING_SUCCESS) std::rethrow_exception(error_of(status, message.c_str()));
  for (Operation* operation : kept_back_)
    if (captured_)
      settle(*operation, starling_test(operation->request), starling_last_error());
    else if (cuda_->holding)
      hold(*operation);
}

// Before anything is asked of the operation.
void Work::launch_kept(bool waited) const {
  if (const auto late = late_.lock()) late->take(this, waited);
}

}  // namespace starling::torch_adapter
