// starling_operation from Python arguments, with the lengths of the buffers checked: C cannot know them.
#pragma once
#include <nanobind/nanobind.h>
#include <starling/starling.h>

#include <optional>
#include <string>
#include <vector>

namespace starling::python {

// What Python passes; the objects that hold the memory must be kept by the caller until completion.
struct Call {
  int kind = 0;
  nanobind::object input;
  nanobind::object output;
  std::optional<std::string> data_type;  // instead of the buffers' own, of the same size (bfloat16 in uint16)
  int reduce_op = 0;
  double scalar = 1;
  int root = 0;
  int peer = 0;
  uint64_t tag = 0;
  std::optional<std::string> lane;
  int priority = 0;
  int64_t timeout_ns = 0;
  std::optional<std::string> algorithm;
  int start = 0;
  uintptr_t stream = 0;
  std::optional<std::vector<size_t>> input_counts;
  std::optional<std::vector<size_t>> input_offsets;
  std::optional<std::vector<size_t>> output_counts;
  std::optional<std::vector<size_t>> output_offsets;
};

// The result points into `call`. Raises InvalidArgumentError with the remedy.
starling_operation operation_of(const Call& call, uint32_t rank, uint32_t size, bool on_gpu);

// The same for a collective of the user's own, whose plan has so many groups in each buffer.
starling_operation custom_operation_of(const Call& call, uint32_t input_groups, uint32_t output_groups,
                                       bool on_gpu);

}  // namespace starling::python
