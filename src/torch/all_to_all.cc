// all_to_all of one tensor, in equal or given parts, and of lists.
#include <torch/csrc/distributed/c10d/Utils.hpp>

#include "call.h"

namespace starling::torch_adapter {

using WorkPointer = c10::intrusive_ptr<c10d::Work>;

namespace {

// Elements that go to (or come from) each rank: rows of dimension 0 times what a row holds.
std::vector<size_t> counts_of_splits(const at::Tensor& tensor, const std::vector<std::int64_t>& split_sizes,
                                     int size, const ElementType& element) {
  std::vector<size_t> counts(static_cast<size_t>(size));
  std::vector<size_t> offsets(static_cast<size_t>(size));
  c10d::computeLengthsAndOffsets(split_sizes, tensor, &counts, &offsets);
  for (size_t& count : counts) count *= element.per_element;
  return counts;
}

std::vector<size_t> counts_of_list(const std::vector<at::Tensor>& tensors, const ElementType& element) {
  std::vector<size_t> counts;
  for (const at::Tensor& tensor : tensors)
    counts.push_back(static_cast<size_t>(tensor.numel()) * element.per_element);
  return counts;
}

}  // namespace

WorkPointer Backend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                   std::vector<std::int64_t>& output_split_sizes,
                                   std::vector<std::int64_t>& input_split_sizes,
                                   const c10d::AllToAllOptions& options) {
  constexpr const char* kTitle = "starling:all_to_all";
  check_tensor(output, kTitle);
  check_tensor(input, kTitle);
  check_alike(output, input, kTitle);
  c10d::checkSplitSizes(input_split_sizes, input, getSize());
  c10d::checkSplitSizes(output_split_sizes, output, getSize());
  const ElementType element = movable_type(input);
  Call call(*this,
            {c10d::OpType::ALLTOALL_BASE, kTitle, {input}, {output}, options.timeout, options.asyncOp});
  starling_operation operation = call.operation(STARLING_ALL_TO_ALL, element);
  operation.input = call.read(input);
  operation.output = call.write(output);
  if (input_split_sizes.empty() && output_split_sizes.empty()) {
    TORCH_CHECK(input.numel() == output.numel(), kTitle,
                ": input and output must be of one size, or come with split sizes");
    operation.count = static_cast<size_t>(input.numel() / getSize()) * element.per_element;
  } else {
    operation.input_counts = call.hold(counts_of_splits(input, input_split_sizes, getSize(), element));
    operation.output_counts = call.hold(counts_of_splits(output, output_split_sizes, getSize(), element));
  }
  call.submit(operation);
  return call.launch();
}

WorkPointer Backend::alltoall(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                              const c10d::AllToAllOptions& options) {
  constexpr const char* kTitle = "starling:all_to_all";
  TORCH_CHECK(outputs.size() == static_cast<size_t>(getSize()) && inputs.size() == outputs.size(), kTitle,
              ": both lists must have world_size (", getSize(), ") tensors");
  for (const std::vector<at::Tensor>* list : {&outputs, &inputs}) {
    for (const at::Tensor& tensor : *list) {
      check_tensor(tensor, kTitle);
      check_alike(tensor, inputs.front(), kTitle);
    }
  }
  const ElementType element = movable_type(inputs.front());
  Call call(*this, {c10d::OpType::ALLTOALL, kTitle, inputs, outputs, options.timeout, options.asyncOp});
  starling_operation operation = call.operation(STARLING_ALL_TO_ALL, element);
  operation.input = call.read_list(inputs);
  operation.output = call.write_list(outputs);
  operation.input_counts = call.hold(counts_of_list(inputs, element));
  operation.output_counts = call.hold(counts_of_list(outputs, element));
  call.submit(operation);
  return call.launch();
}

}  // namespace starling::torch_adapter
