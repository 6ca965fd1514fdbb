// What the library needs to know of a tensor: where its elements lie, how many, of which type.
#pragma once

#include <cstddef>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <starling/starling.h>

namespace starling::torch_adapter {

// A torch type as elements of the library: complex numbers are two, types that the library does not know are
// bytes.
struct ElementType {
  starling_data_type type;
  size_t per_element;  // of the library's elements in one of torch's
  size_t bytes;        // of one of torch's
};

// For operations that only move data: every type.
ElementType movable_type(const at::Tensor& tensor);

struct Reduction {
  ElementType element;
  starling_reduce_op op;
  double scalar;  // of premul_sum
};

// For operations that compute; throws TypeError-like errors for what torch refuses too.
Reduction reduction_of(const at::Tensor& tensor, const c10d::ReduceOp& op, const char* title);

// Strided, and on a device that this backend serves.
void check_tensor(const at::Tensor& tensor, const char* title);
const at::Tensor& single_tensor(const std::vector<at::Tensor>& tensors, const char* title);
// Same type and device.
void check_alike(const at::Tensor& one, const at::Tensor& other, const char* title);

// Where the elements of all the tensors lie one after the other without a gap, in order; else null.
void* adjacent_data(const std::vector<at::Tensor>& tensors);

// Element by element, whatever the strides; without the dispatcher where both are contiguous on the CPU, and
// never recorded by autograd. On CUDA in the current stream.
void copy_elements(const void* source, const at::Tensor& destination);
void copy_elements(const at::Tensor& source, void* destination);

}  // namespace starling::torch_adapter
