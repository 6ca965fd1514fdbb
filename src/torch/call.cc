#include "call.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <ATen/Functions.h>
#include <c10/core/CPUAllocator.h>

#include "lane.h"

namespace starling::torch_adapter {
namespace {

size_t total_bytes(const std::vector<at::Tensor>& tensors) {
  size_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += tensor.nbytes();
  return bytes;
}

void unpack(const void* source, const std::vector<at::Tensor>& tensors) {
  const char* at = static_cast<const char*>(source);
  for (const at::Tensor& tensor : tensors) {
    copy_elements(at, tensor);
    at += tensor.nbytes();
  }
}

c10::Device device_of(const CallDescription& description) {
  if (description.device) return *description.device;
  for (const auto* tensors : {&description.inputs, &description.outputs})
    if (!tensors->empty()) return tensors->front().device();
  return c10::kCPU;
}

}  // namespace

Call::Call(Backend& backend, const CallDescription& description)
    : device_(device_of(description)),
      backend_(backend),
      timeout_(description.timeout),
      async_(description.async) {
  const Backend::Issue issue = backend.begin_work(
      {description.type, description.title, 0, description.inputs, description.outputs, nullptr}, device_);
  work_ = issue.work;
  coalesced_ = issue.coalesced;
}

void* Call::scratch(size_t bytes) {
  if (device_.is_cuda()) {
    const at::Tensor memory = at::empty({static_cast<std::int64_t>(std::max<size_t>(bytes, 1))},
                                        at::TensorOptions().dtype(at::kByte).device(device_));
    work_->keep(memory);
    work_->keep_staging(memory);
    return memory.data_ptr();
  }
  auto memory = std::make_shared<at::DataPtr>(c10::GetCPUAllocator()->allocate(std::max<size_t>(bytes, 1)));
  void* const data = memory->get();
  work_->keep(std::shared_ptr<void>(std::move(memory)));
  return data;
}

const void* Call::read(const at::Tensor& tensor) {
  work_->keep(tensor);
  if (tensor.is_contiguous()) return tensor.const_data_ptr();
  void* const packed = scratch(tensor.nbytes());
  copy_elements(tensor, packed);
  return packed;
}

void* Call::write(const at::Tensor& tensor) {
  work_->keep(tensor);
  if (tensor.is_contiguous()) return tensor.data_ptr();
  void* const packed = scratch(tensor.nbytes());
  work_->at_success([packed, tensor] { copy_elements(packed, tensor); });
  return packed;
}

void* Call::update(const at::Tensor& tensor) {
  void* const memory = write(tensor);
  if (!tensor.is_contiguous()) copy_elements(tensor, memory);
  return memory;
}

const void* Call::read_list(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) work_->keep(tensor);
  if (const void* const adjacent = adjacent_data(tensors)) return adjacent;
  void* const packed = scratch(total_bytes(tensors));
  char* at = static_cast<char*>(packed);
  for (const at::Tensor& tensor : tensors) {
    copy_elements(tensor, at);
    at += tensor.nbytes();
  }
  return packed;
}

void* Call::write_list(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) work_->keep(tensor);
  if (void* const adjacent = adjacent_data(tensors)) return adjacent;
  void* const packed = scratch(total_bytes(tensors));
  work_->at_success([packed, tensors] { unpack(packed, tensors); });
  return packed;
}

starling_operation Call::operation(starling_collective kind, const ElementType& element) const {
  starling_operation operation{};
  operation.struct_bytes = sizeof(operation);
  operation.kind = kind;
  operation.data_type = element.type;
  operation.timeout_ns = timeout_ == c10d::kUnsetTimeout ? 0 : std::chrono::nanoseconds(timeout_).count();
  return operation;
}

starling_operation Call::operation(starling_collective kind, const Reduction& reduction) const {
  starling_operation described = operation(kind, reduction.element);
  described.reduce_op = reduction.op;
  described.scalar = reduction.scalar;
  return described;
}

const size_t* Call::counts(const std::vector<at::Tensor>& tensors, const ElementType& element) {
  const auto unequal = [&](const at::Tensor& tensor) { return tensor.numel() != tensors.front().numel(); };
  if (std::none_of(tensors.begin(), tensors.end(), unequal)) return nullptr;
  std::vector<size_t> table;
  for (const at::Tensor& tensor : tensors) {
    table.push_back(static_cast<size_t>(tensor.numel()) * element.per_element);
  }
  return hold(std::move(table));
}

const size_t* Call::hold(std::vector<size_t> table) {
  auto held = std::make_shared<std::vector<size_t>>(std::move(table));
  const size_t* const data = held->data();
  work_->keep(std::shared_ptr<void>(std::move(held)));
  return data;
}

void Call::submit(starling_operation operation) {
  if (!async_ && !coalesced_) operation.waited = STARLING_WAITED;
  backend_.submit(*work_, operation);
}

c10::intrusive_ptr<c10d::Work> Call::launch() {
  if (!coalesced_) work_->launch();
  return work_;
}

}  // namespace starling::torch_adapter
