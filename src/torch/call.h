// One call of a collective under construction: it finds or stages the memory, submits, and becomes a Work.
//
// The library wants contiguous buffers. A tensor that is contiguous is used in place; any other, and every
// list of tensors that do not lie one after the other, goes through staging memory: packed here, unpacked
// when the work completes.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

#include "backend.h"
#include "tensors.h"
#include "work.h"

namespace starling::torch_adapter {

struct CallDescription {
  c10d::OpType type;
  const char* title;
  std::vector<at::Tensor> inputs;   // for the profiler
  std::vector<at::Tensor> outputs;  // result of the work
  std::chrono::milliseconds timeout = c10d::kUnsetTimeout;
  bool async = true;  // false: the caller waits at once
  std::optional<c10::Device> device{};  // none: that of the first tensor
};

class Call {
 public:
  Call(Backend& backend, const CallDescription& description);

  // Memory to read from, to write to, or both.
  const void* read(const at::Tensor& tensor);
  void* write(const at::Tensor& tensor);
  void* update(const at::Tensor& tensor);
  const void* read_list(const std::vector<at::Tensor>& tensors);
  void* write_list(const std::vector<at::Tensor>& tensors);

  // An operation of this kind on elements of this type, to be filled in.
  starling_operation operation(starling_collective kind, const ElementType& element) const;
  starling_operation operation(starling_collective kind, const Reduction& reduction) const;
  // Numbers of the library's elements, one a rank, held until the work ends; null if all are equal.
  const size_t* counts(const std::vector<at::Tensor>& tensors, const ElementType& element);
  const size_t* hold(std::vector<size_t> table);

  void submit(starling_operation operation);
  void wait_on_host() { work_->wait_on_host(); }
  // The work; inside a coalescing block the block's work, which is launched at its end.
  c10::intrusive_ptr<c10d::Work> launch();

 private:
  void* scratch(size_t bytes);
  c10::Device device_;

  Backend& backend_;
  std::chrono::milliseconds timeout_;
  bool async_;
  c10::intrusive_ptr<Work> work_;
  bool coalesced_ = false;
};

}  // namespace starling::torch_adapter
