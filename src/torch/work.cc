#include "work.h"

#include <algorithm>
#include <utility>

#include <ATen/core/jit_type.h>
#include <c10/util/Exception.h>
#include <c10/util/Logging.h>

#include "errors.h"
#include "future_threads.h"
#include "interruption.h"
#include "work_operation.h"

namespace starling::torch_adapter {

Work::Work(int rank, const WorkDescription& description, std::shared_ptr<InFlight> in_flight)
    : c10d::Work(rank, description.type, description.title,
                 description.inputs.empty() ? std::nullopt : std::make_optional(description.inputs)),
      title_(description.title),
      sequence_(description.sequence),
      in_flight_(std::move(in_flight)),
      started_(std::chrono::steady_clock::now()),
      outputs_(description.outputs),
      cuda_(description.cuda),
      captured_(description.captured) {}

Work::~Work() = default;

void Work::add_outputs(const std::vector<at::Tensor>& outputs) {
  outputs_.insert(outputs_.end(), outputs.begin(), outputs.end());
}

// ---- building ----

void Work::submit(starling_comm* comm, const starling_operation& description,
                  const std::optional<std::string>& ready_lane) {
  Operation& operation = operations_.emplace_back();
  operation.work = this;
  operation.comm = comm;
  operation.description = description;
  if (description.waited != STARLING_WAITED && !captured_) {
    operation.description.callback = on_done;
    operation.description.user = &operation;
  }
  operation.negotiated = ready_lane.has_value();
  named_lane_ |= description.lane != nullptr;
  if (!ready_lane) {
    enqueue(operation);
    return;
  }
  starling_operation ready{};
  ready.struct_bytes = sizeof(ready);
  ready.kind = STARLING_BARRIER;
  ready.lane = ready_lane->c_str();
  ready.priority = description.priority;
  ready.timeout_ns = description.timeout_ns;
  ready.callback = on_ready;
  ready.user = &operation;
  expect_end(operation);
  const starling_status status = starling_submit(comm, &ready, nullptr);
  if (status != STARLING_SUCCESS) {
    operation.settled = true;
    unsettled_.fetch_sub(1);
    operation.alive.reset();
    std::rethrow_exception(error_of(status, starling_last_error()));
  }
}

// The reference and the count are taken before it is submitted: the callback may come before that returns.
void Work::expect_end(Operation& operation) {
  operation.alive = c10::intrusive_ptr<Work>::reclaim_copy(this);
  unsettled_.fetch_add(1);
}

void Work::enqueue(Operation& operation) {
  expect_end(operation);
  const starling_status status = starling_submit(operation.comm, &operation.description, &operation.request);
  if (status == STARLING_SUCCESS && captured_) {
    const starling_status ended = starling_test(operation.request);
    settle(operation, ended, starling_last_error());
    return;
  }
  if (status == STARLING_SUCCESS) {
    if (cuda_ && cuda_->holding) hold(operation);
    return;
  }
  operation.settled = true;
  unsettled_.fetch_sub(1);
  operation.alive.reset();
  std::rethrow_exception(error_of(status, starling_last_error()));
}

// With the group's option hold_streams; behind the submission. A stream of the group stands until the
// operation is complete: the one in which it began (which others wait for by an event, as for any kernel), or
// the one for all that may complete in any order. If it has failed already, nothing need stand.
void Work::hold(Operation& operation) {
  const starling_operation& o = operation.description;
  const HoldingStreams& holding = *cuda_->holding;
  if (o.start == STARLING_START_ON_STREAM)
    starling_stream_wait(operation.request, native_handle(holding.stands));
  else if (o.start == STARLING_START_HOLD_STREAM && o.stream == native_handle(cuda_->in_order))
    operation.behind.emplace(cuda_->device).record(cuda_->in_order);
}

void Work::launch() {
  in_flight_->enter();
  launched_ = true;
  release_one();
}

void Work::fail(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    first_error_ = std::move(error);
  }
  launch();
}

std::exception_ptr Work::error_of(starling_status status, const char* message) const {
  // "Timed out" is what programs look for in the errors of gloo and NCCL.
  const char* const kind = status == STARLING_TIMEOUT ? ": Timed out waiting: " : ": ";
  return make_exception(status, std::string(title_) + kind + (message == nullptr ? "" : message));
}

// ---- completing ----

void Work::on_done(starling_status status, const char* message, void* user) {
  auto* operation = static_cast<Operation*>(user);
  const c10::intrusive_ptr<Work> work = std::move(operation->alive);
  work->settle(*operation, status, message);
}

// All ranks have submitted the operation: now it can run without waiting for anybody.
void Work::on_ready(starling_status status, const char* message, void* user) {
  auto* operation = static_cast<Operation*>(user);
  if (status != STARLING_SUCCESS) {
    on_done(status, message, user);
    return;
  }
  status = starling_submit(operation->comm, &operation->description, nullptr);
  if (status != STARLING_SUCCESS) on_done(status, starling_last_error(), user);
}

void Work::settle(Operation& operation, starling_status status, const char* message) {
  if (operation.settled.exchange(true)) return;
  // Nobody calls back; the caller of wait() holds the work until it returns.
  if (operation.description.waited == STARLING_WAITED || captured_) operation.alive.reset();
  if (status != STARLING_SUCCESS) {
    // On CUDA a program may not look at the work again: its stream goes on with what is there.
    if (cuda_) LOG(ERROR) << title_ << " number " << sequence_ << " failed: " << message;
    const std::exception_ptr error = error_of(status, message);
    const std::lock_guard lock(mutex_);
    if (!first_error_) first_error_ = error;
  }
  release_one();
}

void Work::release_one() {
  if (unsettled_.fetch_sub(1) == 1) complete();
}

void Work::complete() {
  std::exception_ptr error = first_error_;  // settled before by fetch_sub's release; nobody writes any more
  if (!error && !captured_) {
    try {
      if (cuda_)
        finish_on(cuda_->eager.collectives);
      else
        for (const auto& step : finish_steps_) step();
    } catch (...) {
      error = std::current_exception();
    }
  }
  if (!captured_) {
    const std::lock_guard lock(finish_mutex_);
    finish_steps_.clear();
    staging_.clear();
  }
  if (end_step_) std::exchange(end_step_, nullptr)(error);
  if (!captured_) {
    kept_tensors_.clear();
    kept_objects_.clear();
  }
  duration_ns_ = std::chrono::nanoseconds(std::chrono::steady_clock::now() - started_).count();
  finish(error);  // of c10d::Work: sets completed_ and wakes waiters
  complete_future();
  in_flight_->leave();
}

// After finish(). The future is made on demand; it is completed here if it was asked for before the end.
void Work::complete_future() {
  {
    const std::lock_guard lock(mutex_);
    if (!future_ || future_completed_) return;
    future_completed_ = true;
  }
  if (cuda_) {
    FutureThreads::of_process().run(
        [work = c10::intrusive_ptr<Work>::reclaim_copy(this)] { work->complete_cuda_future(); });
    return;
  }
  FutureThreads::of_process().run([future = future_, outputs = outputs_, error = exception()] {
    if (error) {
      future->setError(error);
    } else {
      future->markCompleted(c10::IValue(outputs));
    }
  });
}

// All operations are complete. What is chained to the future runs behind an event of a stream in which
// nothing stands.
void Work::complete_cuda_future() {
  const std::exception_ptr error = exception();
  try {
    const CurrentStream current(cuda_->eager.collectives);
    if (error) return future_->setError(error);
    order_stream(cuda_->eager.collectives);
    future_->markCompleted(c10::IValue(outputs_));
  } catch (...) {  // else whoever waits for it would do so for ever
    future_->setErrorIfNeeded(error ? error : std::current_exception());
  }
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture() {
  launch_kept(false);
  if (cuda_) return cuda_future();
  const std::lock_guard lock(mutex_);
  if (future_) return future_;
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  if (completed_) {
    future_completed_ = true;
    if (exception_) {
      future_->setError(exception_);
    } else {
      future_->markCompleted(c10::IValue(outputs_));
    }
  }
  return future_;
}

// Operations of the default lane complete in order: one stream stands for one after the other, and the future
// is complete as soon as its event is recorded. What a named lane has may complete in any order: when it
// does, so does the future.
c10::intrusive_ptr<c10::ivalue::Future> Work::cuda_future() {
  const auto make = [this] {
    return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                    std::vector<c10::Device>{cuda_->device});
  };
  std::unique_lock lock(mutex_);
  if (future_) return future_;
  auto future = make();
  bool complete = completed_ || (launched_ && !named_lane_ && !waits_on_host_);
  if (complete) {
    // Nobody else has it yet, so nothing is chained to it.
    const std::exception_ptr error = exception_;
    lock.unlock();
    complete = stand_for(*future, error);
    if (!complete) future = make();
    lock.lock();
    if (future_) return future_;  // another thread's
  }
  future_ = future;
  future_completed_ = complete || completed_;
  if (!complete && completed_) {
    lock.unlock();
    complete_cuda_future();
  }
  return future;
}

// Completes the future behind a stream that stands for the operations. False: none does.
bool Work::stand_for(c10::ivalue::Future& future, const std::exception_ptr& error) {
  const auto stand = [this, &future](const c10::Stream& stream) {
    const CurrentStream current(stream);
    if (!order_stream(stream)) rethrow_failure();
    future.markCompleted(c10::IValue(outputs_));
  };
  try {
    if (error) std::rethrow_exception(error);
    if (!captured_) return cuda_->have_stand(number_in_order(), stand);
    stand(cuda_->captured.futures);
  } catch (...) {
    future.setError(std::current_exception());
  }
  return true;
}

// Of its last operation, if all began there and no copies come behind them. 0 else: messages complete in any
// order, and copies may stand in the program's streams already.
std::uint64_t Work::number_in_order() {
  void* const in_order = native_handle(cuda_->in_order);
  for (const Operation& operation : operations_)
    if (operation.description.stream != in_order) return 0;
  const std::lock_guard lock(finish_mutex_);
  return finish_steps_.empty() && !finish_steps_taken_ ? in_order_ : 0;
}

// ---- waiting ----

void Work::rethrow_failure() {
  const std::lock_guard lock(mutex_);
  if (first_error_) std::rethrow_exception(first_error_);
  if (exception_) std::rethrow_exception(exception_);
}

// The stream's later work begins after the operations and the copies behind them. Does not wait, but for
// operations that are on no stream. False: one has failed.
bool Work::order_stream(const c10::Stream& stream) {
  if (captured_) return order_captured(stream);
  void* const handle = native_handle(stream);
  launch_kept(caller_ && handle == native_handle(*caller_));
  for (Operation& operation : operations_) {
    const starling_operation& o = operation.description;
    if (operation.request == nullptr || operation.settled) continue;
    starling_status status;
    if (o.start == STARLING_START_NOW)
      status = starling_wait(operation.request, -1);
    else if ((o.start == STARLING_START_HOLD_STREAM && o.stream == handle) ||
             (operation.caller_stands && native_handle(*caller_) == handle))
      status = starling_test(operation.request);  // the stream is held already
    else if (operation.behind) {
      operation.behind->block(stream);
      status = starling_test(operation.request);
    } else
      status = starling_stream_wait(operation.request, handle);
    const bool ended =
        o.start == STARLING_START_NOW || (status != STARLING_SUCCESS && status != STARLING_IN_PROGRESS);
    if (ended) settle(operation, status, starling_last_error());
  }
  {
    const std::lock_guard lock(mutex_);
    if (first_error_) return false;
  }
  finish_on(stream);
  return true;
}

// The capture's edges bring the stream behind the start kernels; what they have parked is waited for by
// gates.
bool Work::order_captured(const c10::Stream& stream) {
  {
    const std::lock_guard lock(mutex_);
    if (first_error_) return false;
  }
  void* const handle = native_handle(stream);
  for (const Operation& operation : operations_) {
    const starling_operation& o = operation.description;
    const c10::Stream own = external_stream(cuda_->device, o.stream);
    TORCH_CHECK(cuda_->captures(own), title_,
                " was captured into a CUDA graph: wait() for it in the capture. ",
                "What comes behind a replay is ordered by the stream that replays");
    if (o.start == STARLING_START_HOLD_STREAM && o.stream == handle) continue;  // held already
    cuda_->order.after(stream, own);
    const starling_status status = starling_stream_wait(operation.request, handle);
    if (status != STARLING_SUCCESS) std::rethrow_exception(error_of(status, starling_last_error()));
  }
  finish_on(stream);
  return true;
}

// Copies out of staging memory go into the first stream that waits; others wait for that.
void Work::finish_on(const c10::Stream& stream) {
  const std::lock_guard lock(finish_mutex_);
  if (finished_) return finished_->block(stream);
  if (finish_steps_taken_ || finish_steps_.empty()) return;
  finish_steps_taken_ = true;
  const CurrentStream current(stream);
  for (const auto& step : finish_steps_) step();
  const c10::impl::VirtualGuardImpl guard(c10::DeviceType::CUDA);
  for (const auto* tensors : {&staging_, &outputs_})
    for (const at::Tensor& tensor : *tensors)
      guard.recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
  finished_.emplace(cuda_->device).record(stream);
}

bool Work::isCompleted() {
  launch_kept(false);
  if (!launched_) return false;
  if (cuda_ && !captured_) {  // events of a capture cannot be asked
    const std::lock_guard lock(finish_mutex_);
    if (finished_ && !finished_->query()) return false;
  }
  for (Operation& operation : operations_) {
    if (operation.description.waited != STARLING_WAITED || operation.settled) continue;
    const starling_status status = starling_test(operation.request);
    if (status != STARLING_IN_PROGRESS) settle(operation, status, starling_last_error());
  }
  const std::lock_guard lock(mutex_);
  return completed_;
}

// Waits in the library, which answers sooner than its callback thread does. False: past the deadline.
bool Work::wait_for_requests(std::chrono::steady_clock::time_point deadline) {
  if (!launched_) return true;  // wait() goes on with the condition variable
  using namespace std::chrono;
  const bool bounded = deadline != steady_clock::time_point::max();
  for (Operation& operation : operations_) {
    if (operation.request == nullptr || operation.settled) continue;
    std::int64_t left_ns = -1;
    if (bounded) left_ns = std::max<std::int64_t>(0, nanoseconds(deadline - steady_clock::now()).count());
    starling_status status = starling_wait(operation.request, left_ns);
    // A timeout of this wait leaves the operation going; a timeout of the operation ends it.
    if (status == STARLING_TIMEOUT && bounded) status = starling_test(operation.request);
    if (status == STARLING_IN_PROGRESS) return false;
    settle(operation, status, starling_last_error());
  }
  return true;
}

// False: past the deadline.
bool Work::wait_until(std::chrono::steady_clock::time_point deadline) {
  wait_for_requests(deadline);
  std::unique_lock lock(mutex_);
  if (deadline != std::chrono::steady_clock::time_point::max())
    return cv_.wait_until(lock, deadline, [this] { return completed_; });
  cv_.wait(lock, [this] { return completed_; });  // bounded by the operations' own timeouts
  return true;
}

// False: past the deadline. Throws what a handler of a signal raised.
bool Work::wait_interruptibly(std::chrono::steady_clock::time_point deadline) {
  if (!on_main_thread()) return wait_until(deadline);
  for (;;) {
    const auto look = std::min(deadline, std::chrono::steady_clock::now() + kSignalsEvery);
    if (wait_until(look)) return true;
    if (look == deadline) return false;
    try {
      check_signals();
    } catch (...) {
      in_flight_->interrupted();
      throw;
    }
  }
}

bool Work::wait(std::chrono::milliseconds timeout) {
  if (cuda_) {
    rethrow_failure();
    order_stream(current_stream(cuda_->device));
    rethrow_failure();
    if (captured_ || (timeout == kNoTimeout && !waits_on_host_)) return true;
  }
  const auto deadline = timeout == kNoTimeout ? std::chrono::steady_clock::time_point::max()
                                              : std::chrono::steady_clock::now() + timeout;
  if (!wait_interruptibly(deadline)) {
    C10_THROW_ERROR(
        DistBackendError,
        c10::str(title_, " number ", sequence_, " Timed out: Operation timed out! ",
                 "It did not finish within the ", timeout.count(), " ms that wait() was given; it goes on"));
  }
  const std::lock_guard lock(mutex_);
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

// Tensors of the CPU are ready when the work is completed.
void Work::synchronize() {
  if (cuda_) order_stream(current_stream(cuda_->device));
}

void Work::abort() {
  TORCH_CHECK(false, "starling: one work cannot be aborted alone; abort its process group");
}

std::vector<at::Tensor> Work::result() {
  TORCH_CHECK(cuda_ || isCompleted(), title_, ": work needs to be completed before calling result(). ",
              "Call wait() first");
  return outputs_;
}

int Work::sourceRank() const {
  launch_kept(false);
  if (!launched_ || operations_.empty() || operations_.front().request == nullptr) return -1;
  return starling_request_source(operations_.front().request);
}

float Work::getDuration() const {
  constexpr float kMsPerNs = 1e-6F;
  return static_cast<float>(duration_ns_.load()) * kMsPerNs;
}

}  // namespace starling::torch_adapter
