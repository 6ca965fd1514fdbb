// Collectives of one tensor.
#include "call.h"

namespace starling::torch_adapter {

using WorkPointer = c10::intrusive_ptr<c10d::Work>;

WorkPointer Backend::broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) {
  constexpr const char* kTitle = "starling:broadcast";
  const at::Tensor& tensor = single_tensor(tensors, kTitle);
  Call call(*this, {c10d::OpType::BROADCAST, kTitle, {tensor}, {tensor}, options.timeout, options.asyncOp});
  const ElementType element = movable_type(tensor);
  starling_operation operation = call.operation(STARLING_BROADCAST, element);
  operation.output = call.update(tensor);
  operation.input = operation.output;
  operation.count = static_cast<size_t>(tensor.numel()) * element.per_element;
  operation.root = static_cast<std::int32_t>(options.rootRank);
  call.submit(operation);
  return call.launch();
}

namespace {

void submit_all_reduce(Call& call, const at::Tensor& tensor, const Reduction& reduction) {
  starling_operation operation = call.operation(STARLING_ALL_REDUCE, reduction);
  operation.output = call.update(tensor);
  operation.input = operation.output;
  operation.count = static_cast<size_t>(tensor.numel()) * reduction.element.per_element;
  call.submit(operation);
}

}  // namespace

WorkPointer Backend::allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) {
  constexpr const char* kTitle = "starling:all_reduce";
  if (tensors.size() == 1 && tensors.front().is_sparse()) return allreduce_sparse(tensors, options);
  const at::Tensor& tensor = single_tensor(tensors, kTitle);
  const Reduction reduction = reduction_of(tensor, options.reduceOp, kTitle);
  Call call(*this, {c10d::OpType::ALLREDUCE, kTitle, {tensor}, {tensor}, options.timeout, options.asyncOp});
  submit_all_reduce(call, tensor, reduction);
  return call.launch();
}

WorkPointer Backend::allreduce_coalesced(std::vector<at::Tensor>& tensors,
                                         const c10d::AllreduceCoalescedOptions& options) {
  constexpr const char* kTitle = "starling:all_reduce_coalesced";
  std::vector<Reduction> reductions;
  for (const at::Tensor& tensor : tensors) {
    check_tensor(tensor, kTitle);
    reductions.push_back(reduction_of(tensor, options.reduceOp, kTitle));
  }
  Call call(*this,
            {c10d::OpType::ALLREDUCE_COALESCED, kTitle, tensors, tensors, options.timeout, options.asyncOp});
  for (size_t i = 0; i < tensors.size(); ++i) submit_all_reduce(call, tensors[i], reductions[i]);
  return call.launch();
}

WorkPointer Backend::reduce(std::vector<at::Tensor>& tensors, const c10d::ReduceOptions& options) {
  constexpr const char* kTitle = "starling:reduce";
  const at::Tensor& tensor = single_tensor(tensors, kTitle);
  const Reduction reduction = reduction_of(tensor, options.reduceOp, kTitle);
  Call call(*this, {c10d::OpType::REDUCE, kTitle, {tensor}, {tensor}, options.timeout, options.asyncOp});
  starling_operation operation = call.operation(STARLING_REDUCE, reduction);
  if (options.rootRank == getRank()) {
    operation.output = call.update(tensor);
    operation.input = operation.output;
  } else {
    operation.input = call.read(tensor);
  }
  operation.count = static_cast<size_t>(tensor.numel()) * reduction.element.per_element;
  operation.root = static_cast<std::int32_t>(options.rootRank);
  call.submit(operation);
  return call.launch();
}

WorkPointer Backend::barrier(const c10d::BarrierOptions& options) {
  // On a GPU it is in the caller's stream, behind its work, and wait() returns when it is complete.
  const c10::Device device = options.device && options.device->is_cuda() ? *options.device : usual_device();
  Call call(*this,
            {c10d::OpType::BARRIER, "starling:barrier", {}, {}, options.timeout, options.asyncOp, device});
  call.wait_on_host();
  call.submit(call.operation(STARLING_BARRIER, ElementType{STARLING_UINT8, 1, 1}));
  return call.launch();
}

}  // namespace starling::torch_adapter
