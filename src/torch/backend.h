// Process group backend "starling": c10d::Backend over the C API.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "communicator.h"
#include "torch_version.h"
#include "work.h"

namespace starling::torch_adapter {

inline constexpr const char* kBackendName = "starling";

struct BackendOptions final : c10d::Backend::Options {
  explicit BackendOptions(std::chrono::milliseconds timeout = kBackendDefaultTimeout)
      : c10d::Backend::Options(kBackendName, timeout) {}

  // Submit an operation when all ranks have issued it (OCCL section 4). The same on all ranks.
  bool negotiate = false;
  // Which messages between GPUs copy engines move. The least willing rank decides.
  starling_sm_free sm_free = STARLING_SM_FREE_DEFAULT;
  // An asynchronous operation of CUDA holds a stream of the group until it is complete, as NCCL's do. Each
  // rank for itself.
  bool hold_streams = false;
};

class Backend final : public c10d::Backend {
 public:
  // Collective over the group.
  Backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
          c10::intrusive_ptr<BackendOptions> options);
  ~Backend() override;

  // ---- collectives (collectives.cc)
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allreduce_coalesced(std::vector<at::Tensor>& tensors,
                                                     const c10d::AllreduceCoalescedOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce(std::vector<at::Tensor>& tensors,
                                        const c10d::ReduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override;

  // ---- sparse.cc; all_reduce comes here with a sparse tensor
  c10::intrusive_ptr<c10d::Work> allreduce_sparse(std::vector<at::Tensor>& tensors,
                                                  const c10d::AllreduceOptions& options) override;

  // ---- gather_scatter.cc
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather_coalesced(std::vector<std::vector<at::Tensor>>& outputs,
                                                     std::vector<at::Tensor>& inputs,
                                                     const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather_into_tensor_coalesced(
      std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
      const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> gather(std::vector<std::vector<at::Tensor>>& outputs,
                                        std::vector<at::Tensor>& inputs,
                                        const c10d::GatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> scatter(std::vector<at::Tensor>& outputs,
                                         std::vector<std::vector<at::Tensor>>& inputs,
                                         const c10d::ScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter(std::vector<at::Tensor>& outputs,
                                                std::vector<std::vector<at::Tensor>>& inputs,
                                                const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter_tensor_coalesced(
      std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
      const c10d::ReduceScatterOptions& options) override;

  // ---- all_to_all.cc
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input,
                                               std::vector<std::int64_t>& output_split_sizes,
                                               std::vector<std::int64_t>& input_split_sizes,
                                               const c10d::AllToAllOptions& options) override;
  c10::intrusive_ptr<c10d::Work> alltoall(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                                          const c10d::AllToAllOptions& options) override;

  // ---- custom.cc: plans of the user's own, for the tensors of one kind of device. Collective, the first
  // time that the group hears of a GPU.
  std::uint32_t daemon_blocks(c10::Device device);
  void add_plan(const std::string& text, std::uint64_t smallest_bytes, std::uint64_t largest_bytes,
                const std::string& name, std::uint32_t input_groups, std::uint32_t output_groups,
                c10::Device device);
  // The collective whose plan was added under the name, else the library's of this name. In place if both are
  // one tensor.
  c10::intrusive_ptr<c10d::Work> run_plan(const std::string& name, at::Tensor& input, at::Tensor& output,
                                          const c10d::ReduceOp& op, bool async);

  // ---- point_to_point.cc
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int destination, int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int source, int tag) override;
  c10::intrusive_ptr<c10d::Work> recvAnysource(std::vector<at::Tensor>& tensors, int tag) override;

  // ---- monitored_barrier.cc
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  // ---- backend.cc
  const std::string getBackendName() const override { return kBackendName; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return options_; }
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  c10::intrusive_ptr<c10d::Work> endCoalescing() override;
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                          const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<c10d::Backend::Options>& options) override;
  void setTimeout(std::chrono::milliseconds timeout) override;
  void abort() override;
  void shutdown() override;
  c10d::ErrorType getError() override;
  void check_error();  // throws what getError() has the kind of
  void setSequenceNumberForGroup() override {}  // all ranks count from 0
  std::uint64_t getSequenceNumberForGroup() override { return sequence_; }
  void enableCollectivesTiming() override {}  // every work knows its duration
  // The constructor has connected the CPU; a GPU that is named connects here, any other at its first tensor.
  void eagerConnectSingleDevice(at::Device device) override;

  // ---- for Call
  struct Issue {
    c10::intrusive_ptr<Work> work;
    bool coalesced;
  };
  // A new work on tensors of the device, or the one of the coalescing block.
  Issue begin_work(const WorkDescription& description, c10::Device device);
  // Where an operation without tensors runs: the GPU that the group uses, if there is one.
  c10::Device usual_device() const;
  // Adds lane and priority of the calling thread.
  void submit(Work& work, starling_operation operation);

  // Throws after shutdown.
  std::shared_ptr<Communicator> communicator() const;

 private:
  // What the group has on one GPU. Collective at the first call.
  struct CudaSide {
    std::shared_ptr<Communicator> communicator;
    std::shared_ptr<GroupStreams> streams;
    std::shared_ptr<LateLaunch> late;
  };
  CudaSide cuda_side(c10::Device device);
  void submit_on_stream(Work& work, starling_operation operation);
  std::vector<std::shared_ptr<Communicator>> communicators() const;
  std::vector<std::shared_ptr<LateLaunch>> late_launches() const;

  const c10::intrusive_ptr<BackendOptions> options_;
  std::atomic<std::uint64_t> sequence_ = 0;

  mutable std::mutex mutex_;  // of what follows
  const c10::intrusive_ptr<c10d::Store> store_;
  std::shared_ptr<Communicator> communicator_;  // of the CPU; null after shutdown
  std::map<c10::DeviceIndex, CudaSide> cuda_sides_;
  std::shared_ptr<Communicator> communicator_on(c10::Device device);
  // Of the plans that were added, by kind of device and name: groups of their buffers.
  struct PlanGroups {
    std::uint32_t input;
    std::uint32_t output;
  };
  std::map<std::pair<c10::DeviceType, std::string>, PlanGroups> plans_;
  PlanGroups groups_of_plan(const std::string& name, c10::Device device);
  bool coalesces_ = false;  // a block is open
  c10::intrusive_ptr<Work> coalescing_;  // its work, from its first operation on
  std::mutex joining_;  // one thread makes a side of a GPU
};

}  // namespace starling::torch_adapter
