// Collectives in which one buffer holds a part of every rank.
#include "call.h"

namespace starling::torch_adapter {

using WorkPointer = c10::intrusive_ptr<c10d::Work>;

namespace {

size_t elements(const at::Tensor& tensor, const ElementType& element) {
  return static_cast<size_t>(tensor.numel()) * element.per_element;
}

// `parts` is one tensor a rank, all like `own`.
void check_parts(const std::vector<at::Tensor>& parts, const at::Tensor& own, int size, const char* title) {
  TORCH_CHECK(parts.size() == static_cast<size_t>(size), title, ": the list has ", parts.size(),
              " tensors, the group ", size, " ranks: they must be as many");
  for (const at::Tensor& part : parts) {
    check_tensor(part, title);
    check_alike(part, own, title);
  }
}

void check_equal_parts(const std::vector<at::Tensor>& parts, const at::Tensor& own, const char* title) {
  for (const at::Tensor& part : parts) {
    TORCH_CHECK(part.numel() == own.numel(), title, ": invalid tensor size: a part has ", part.numel(),
                " elements, this rank's tensor ", own.numel());
  }
}

void check_whole(const at::Tensor& whole, const at::Tensor& part, int size, const char* title) {
  check_tensor(whole, title);
  check_tensor(part, title);
  check_alike(whole, part, title);
  TORCH_CHECK(whole.numel() == part.numel() * size, title, ": the whole has ", whole.numel(),
              " elements; it must have world_size (", size, ") times the ", part.numel(), " of the part");
}

void submit_all_gather(Call& call, const at::Tensor& output, const at::Tensor& input) {
  const ElementType element = movable_type(input);
  starling_operation operation = call.operation(STARLING_ALL_GATHER, element);
  operation.input = call.read(input);
  operation.output = call.write(output);
  operation.count = elements(input, element);
  call.submit(operation);
}

void submit_all_gather_list(Call& call, const std::vector<at::Tensor>& outputs, const at::Tensor& input) {
  const ElementType element = movable_type(input);
  starling_operation operation = call.operation(STARLING_ALL_GATHER, element);
  operation.input = call.read(input);
  operation.output = call.write_list(outputs);
  operation.count = elements(input, element);
  operation.output_counts = call.counts(outputs, element);
  call.submit(operation);
}

void submit_reduce_scatter(Call& call, const at::Tensor& output, const at::Tensor& input,
                           const Reduction& reduction) {
  starling_operation operation = call.operation(STARLING_REDUCE_SCATTER, reduction);
  operation.input = call.read(input);
  operation.output = call.write(output);
  operation.count = elements(output, reduction.element);
  call.submit(operation);
}

}  // namespace

WorkPointer Backend::allgather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                               const c10d::AllgatherOptions& options) {
  constexpr const char* kTitle = "starling:all_gather";
  const at::Tensor& input = single_tensor(inputs, kTitle);
  TORCH_CHECK(outputs.size() == 1, kTitle, ": takes a single list of outputs, got ", outputs.size());
  check_parts(outputs.front(), input, getSize(), kTitle);
  TORCH_CHECK(outputs.front()[static_cast<size_t>(getRank())].numel() == input.numel(), kTitle,
              ": invalid tensor size: this rank's output has another number of elements than its input");
  Call call(*this,
            {c10d::OpType::ALLGATHER, kTitle, inputs, outputs.front(), options.timeout, options.asyncOp});
  submit_all_gather_list(call, outputs.front(), input);
  return call.launch();
}

WorkPointer Backend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                     const c10d::AllgatherOptions& options) {
  constexpr const char* kTitle = "starling:_all_gather_base";
  check_whole(output, input, getSize(), kTitle);
  Call call(*this,
            {c10d::OpType::_ALLGATHER_BASE, kTitle, {input}, {output}, options.timeout, options.asyncOp});
  submit_all_gather(call, output, input);
  return call.launch();
}

WorkPointer Backend::allgather_coalesced(std::vector<std::vector<at::Tensor>>& outputs,
                                         std::vector<at::Tensor>& inputs,
                                         const c10d::AllgatherOptions& options) {
  // `outputs` is indexed by rank, then by input.
  constexpr const char* kTitle = "starling:all_gather_coalesced";
  TORCH_CHECK(outputs.size() == static_cast<size_t>(getSize()), kTitle, ": needs one list of outputs a rank");
  std::vector<std::vector<at::Tensor>> by_input(inputs.size());
  std::vector<at::Tensor> flat;
  for (const std::vector<at::Tensor>& of_rank : outputs) {
    TORCH_CHECK(of_rank.size() == inputs.size(), kTitle,
                ": every rank's list must be as long as the inputs' list");
    for (size_t i = 0; i < inputs.size(); ++i) by_input[i].push_back(of_rank[i]);
    flat.insert(flat.end(), of_rank.begin(), of_rank.end());
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_tensor(inputs[i], kTitle);
    check_parts(by_input[i], inputs[i], getSize(), kTitle);
    check_equal_parts(by_input[i], inputs[i], kTitle);
  }
  Call call(*this,
            {c10d::OpType::ALLGATHER_COALESCED, kTitle, inputs, flat, options.timeout, options.asyncOp});
  for (size_t i = 0; i < inputs.size(); ++i) submit_all_gather_list(call, by_input[i], inputs[i]);
  return call.launch();
}

WorkPointer Backend::allgather_into_tensor_coalesced(std::vector<at::Tensor>& outputs,
                                                     std::vector<at::Tensor>& inputs,
                                                     const c10d::AllgatherOptions& options) {
  constexpr const char* kTitle = "starling:all_gather_into_tensor_coalesced";
  TORCH_CHECK(outputs.size() == inputs.size(), kTitle, ": needs as many outputs as inputs");
  for (size_t i = 0; i < inputs.size(); ++i) check_whole(outputs[i], inputs[i], getSize(), kTitle);
  Call call(*this, {c10d::OpType::COALESCED, kTitle, inputs, outputs, options.timeout, options.asyncOp});
  for (size_t i = 0; i < inputs.size(); ++i) submit_all_gather(call, outputs[i], inputs[i]);
  return call.launch();
}

WorkPointer Backend::gather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                            const c10d::GatherOptions& options) {
  constexpr const char* kTitle = "starling:gather";
  const at::Tensor& input = single_tensor(inputs, kTitle);
  const bool is_root = options.rootRank == getRank();
  TORCH_CHECK(outputs.size() == (is_root ? 1U : 0U), kTitle,
              is_root ? ": the root needs" : ": other ranks take no", " list of outputs");
  std::vector<at::Tensor> parts;
  if (is_root) {
    parts = outputs.front();
    check_parts(parts, input, getSize(), kTitle);
    check_equal_parts(parts, input, kTitle);
  }
  Call call(*this, {c10d::OpType::GATHER, kTitle, inputs, parts, options.timeout, options.asyncOp});
  const ElementType element = movable_type(input);
  starling_operation operation = call.operation(STARLING_GATHER, element);
  operation.input = call.read(input);
  if (is_root) operation.output = call.write_list(parts);
  operation.count = elements(input, element);
  operation.root = static_cast<std::int32_t>(options.rootRank);
  call.submit(operation);
  return call.launch();
}

WorkPointer Backend::scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                             const c10d::ScatterOptions& options) {
  constexpr const char* kTitle = "starling:scatter";
  const at::Tensor& output = single_tensor(outputs, kTitle);
  const bool is_root = options.rootRank == getRank();
  TORCH_CHECK(inputs.size() == (is_root ? 1U : 0U), kTitle,
              is_root ? ": the root needs" : ": other ranks take no", " list of inputs");
  std::vector<at::Tensor> parts;
  if (is_root) {
    parts = inputs.front();
    check_parts(parts, output, getSize(), kTitle);
    check_equal_parts(parts, output, kTitle);
  }
  Call call(*this, {c10d::OpType::SCATTER, kTitle, parts, outputs, options.timeout, options.asyncOp});
  const ElementType element = movable_type(output);
  starling_operation operation = call.operation(STARLING_SCATTER, element);
  if (is_root) operation.input = call.read_list(parts);
  operation.output = call.write(output);
  operation.count = elements(output, element);
  operation.root = static_cast<std::int32_t>(options.rootRank);
  call.submit(operation);
  return call.launch();
}

WorkPointer Backend::reduce_scatter(std::vector<at::Tensor>& outputs,
                                    std::vector<std::vector<at::Tensor>>& inputs,
                                    const c10d::ReduceScatterOptions& options) {
  constexpr const char* kTitle = "starling:reduce_scatter";
  const at::Tensor& output = single_tensor(outputs, kTitle);
  TORCH_CHECK(inputs.size() == 1, kTitle, ": takes a single list of inputs, got ", inputs.size());
  const std::vector<at::Tensor>& parts = inputs.front();
  check_parts(parts, output, getSize(), kTitle);
  TORCH_CHECK(parts[static_cast<size_t>(getRank())].numel() == output.numel(), kTitle,
              ": invalid tensor size: this rank's input has another number of elements than its output");
  const Reduction reduction = reduction_of(output, options.reduceOp, kTitle);
  Call call(*this, {c10d::OpType::REDUCE_SCATTER, kTitle, parts, outputs, options.timeout, options.asyncOp});
  starling_operation operation = call.operation(STARLING_REDUCE_SCATTER, reduction);
  operation.input = call.read_list(parts);
  operation.output = call.write(output);
  operation.count = elements(output, reduction.element);
  operation.input_counts = call.counts(parts, reduction.element);
  call.submit(operation);
  return call.launch();
}

WorkPointer Backend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                          const c10d::ReduceScatterOptions& options) {
  constexpr const char* kTitle = "starling:_reduce_scatter_base";
  check_whole(input, output, getSize(), kTitle);
  const Reduction reduction = reduction_of(output, options.reduceOp, kTitle);
  Call call(
      *this,
      {c10d::OpType::_REDUCE_SCATTER_BASE, kTitle, {input}, {output}, options.timeout, options.asyncOp});
  submit_reduce_scatter(call, output, input, reduction);
  return call.launch();
}

WorkPointer Backend::reduce_scatter_tensor_coalesced(std::vector<at::Tensor>& outputs,
                                                     std::vector<at::Tensor>& inputs,
                                                     const c10d::ReduceScatterOptions& options) {
  constexpr const char* kTitle = "starling:reduce_scatter_tensor_coalesced";
  TORCH_CHECK(outputs.size() == inputs.size(), kTitle, ": needs as many outputs as inputs");
  std::vector<Reduction> reductions;
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_whole(inputs[i], outputs[i], getSize(), kTitle);
    reductions.push_back(reduction_of(outputs[i], options.reduceOp, kTitle));
  }
  Call call(*this, {kReduceScatterCoalesced, kTitle, inputs, outputs, options.timeout, options.asyncOp});
  for (size_t i = 0; i < inputs.size(); ++i)
    submit_reduce_scatter(call, outputs[i], inputs[i], reductions[i]);
  return call.launch();
}

}  // namespace starling::torch_adapter
