// The Work of torch.distributed: one or more operations of the library that complete together.
//
// Who completes it: each operation is settled once, by the library's callback thread or by a thread in
// wait(), whichever sees the end first. The one that settles the last operation runs the finish steps (copies
// out of staging memory), wakes the waiters and hands the future to FutureThreads.
//
// One that is captured into a CUDA graph is complete as soon as it is launched: what runs in a replay is no
// business of it. It keeps its tensors as long as it lives, and wait() orders streams of the capture.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <starling/starling.h>

#include "communicator.h"
#include "late_launch.h"
#include "streams.h"

namespace starling::torch_adapter {

struct WorkDescription {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  const char* title = "";  // for the profiler and for messages; a literal
  std::uint64_t sequence = 0;
  std::vector<at::Tensor> inputs;  // for the profiler
  std::vector<at::Tensor> outputs;  // result() and the future's value
  std::shared_ptr<GroupStreams> cuda;  // null: tensors of the CPU
  bool captured = false;  // into a graph
};

class Work final : public c10d::Work {
 public:
  Work(int rank, const WorkDescription& description, std::shared_ptr<InFlight> in_flight);
  ~Work() override;

  // ---- building; then launch()

  // `operation`'s tables and strings must live until the work ends: keep() them. With `ready_lane` the
  // operation is held back until all ranks have come so far (negotiation, OCCL section 4): a barrier in that
  // lane, whose callback submits it.
  void submit(starling_comm* comm, const starling_operation& operation,
              const std::optional<std::string>& ready_lane = std::nullopt);
  // Sends and receives of CUDA that begin together: for submit_late() or submit_captured(). False: the stream
  // that is current now is not that of those before.
  bool add_late(starling_comm* comm, const starling_operation& operation);
  bool has_late() const { return !kept_back_.empty(); }
  // They are kept back until the program waits for them or goes on. Then they are launched on `own`, or,
  // waited for by the stream that was current at the call, on that one's companion.
  void submit_late(std::shared_ptr<Communicator> communicator, const std::shared_ptr<LateLaunch>& late,
                   const c10::Stream& own);
  // They are captured at once, on `own`, which comes behind the stream that was current at the call.
  void submit_captured(const c10::Stream& own);
  // Runs once, when all operations succeeded, before anybody learns of it. On CUDA it puts copies into the
  // current stream behind the operations.
  void at_success(std::function<void()> step) { finish_steps_.push_back(std::move(step)); }
  // Runs once at the end, with the error or null, after the steps above and before waiters wake.
  void at_end(std::function<void(std::exception_ptr)> step) { end_step_ = std::move(step); }
  // Held until completion.
  void keep(at::Tensor tensor) { kept_tensors_.push_back(std::move(tensor)); }
  void keep(std::shared_ptr<void> object) { kept_objects_.push_back(std::move(object)); }
  // Staging memory of CUDA, which steps above read.
  void keep_staging(at::Tensor tensor) { staging_.push_back(std::move(tensor)); }
  // wait() returns when the operations are complete, on the CPU too.
  void wait_on_host() { waits_on_host_ = true; }
  // The number of its last operation in GroupStreams::in_order.
  void begins_in_order(std::uint64_t number) { in_order_ = number; }
  const std::shared_ptr<GroupStreams>& cuda() const { return cuda_; }
  bool captured() const { return captured_; }
  // It is that of a coalescing block.
  bool coalesces() const { return opType_ == c10d::OpType::COALESCED; }
  void add_outputs(const std::vector<at::Tensor>& outputs);
  // By the thread that builds, which may be another than the one that waits.
  void launch();
  // Instead of launch().
  void fail(std::exception_ptr error);

  // ---- c10d::Work

  bool isCompleted() override;
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  std::vector<at::Tensor> result() override;
  int sourceRank() const override;
  float getDuration() const override;
  std::uint64_t getSequencenumber() const override { return sequence_; }

 private:
  struct Operation;

  void enqueue(Operation& operation);
  void expect_end(Operation& operation);
  void hold(Operation& operation);
  void launch_late(const c10::Stream& own, bool waited);
  void enqueue_together(const c10::Stream& stream, starling_start start);
  void launch_kept(bool waited) const;
  std::exception_ptr error_of(starling_status status, const char* message) const;
  void settle(Operation& operation, starling_status status, const char* message);
  void release_one();
  void complete();
  void complete_future();
  bool wait_for_requests(std::chrono::steady_clock::time_point deadline);
  bool wait_until(std::chrono::steady_clock::time_point deadline);
  bool wait_interruptibly(std::chrono::steady_clock::time_point deadline);
  void rethrow_failure();
  bool order_stream(const c10::Stream& stream);
  bool order_captured(const c10::Stream& stream);
  void finish_on(const c10::Stream& stream);
  void complete_cuda_future();
  c10::intrusive_ptr<c10::ivalue::Future> cuda_future();
  bool stand_for(c10::ivalue::Future& future, const std::exception_ptr& error);
  std::uint64_t number_in_order();
  static void on_done(starling_status status, const char* message, void* user);
  static void on_ready(starling_status status, const char* message, void* user);

  const char* title_;
  const std::uint64_t sequence_;
  const std::shared_ptr<InFlight> in_flight_;
  const std::chrono::steady_clock::time_point started_;
  std::atomic<std::int64_t> duration_ns_ = 0;

  std::vector<at::Tensor> outputs_;
  std::vector<at::Tensor> kept_tensors_;
  std::vector<std::shared_ptr<void>> kept_objects_;
  std::vector<std::function<void()>> finish_steps_;
  std::function<void(std::exception_ptr)> end_step_;

  std::deque<Operation> operations_;  // grows while building only; addresses are stable
  std::atomic<bool> launched_ = false;  // from then on other threads may read operations_
  std::atomic<std::int64_t> unsettled_ = 1;  // operations not settled, plus one until launch()

  const std::shared_ptr<GroupStreams> cuda_;
  const bool captured_;
  std::weak_ptr<LateLaunch> late_;  // empty: launched when submitted, or the group is gone
  std::vector<Operation*> kept_back_;  // by add_late()
  std::optional<c10::Stream> caller_;  // of these
  std::optional<DeviceEvent> called_;  // what the caller's stream held then
  bool waits_on_host_ = false;
  std::uint64_t in_order_ = 0;
  bool named_lane_ = false;  // of one operation at least: it may complete in any order
  std::vector<at::Tensor> staging_;
  std::mutex finish_mutex_;  // of the next two
  bool finish_steps_taken_ = false;
  std::optional<DeviceEvent> finished_;  // behind the copies of the finish steps

  std::exception_ptr first_error_;  // mutex_ of c10d::Work
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // mutex_
  bool future_completed_ = false;  // mutex_
};

}  // namespace starling::torch_adapter
