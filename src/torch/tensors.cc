#include "tensors.h"

#include <cstring>
#include <optional>

#include <ATen/Functions.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include "torch_version.h"

namespace starling::torch_adapter {
namespace {

std::optional<starling_data_type> library_type(at::ScalarType type) {
  switch (type) {
    case at::kChar: return STARLING_INT8;
    case at::kByte: return STARLING_UINT8;
    case at::kShort: return STARLING_INT16;
    case at::kUInt16: return STARLING_UINT16;
    case at::kInt: return STARLING_INT32;
    case at::kUInt32: return STARLING_UINT32;
    case at::kLong: return STARLING_INT64;
    case at::kUInt64: return STARLING_UINT64;
    case at::kHalf: return STARLING_FLOAT16;
    case at::kBFloat16: return STARLING_BFLOAT16;
    case at::kFloat: return STARLING_FLOAT32;
    case at::kDouble: return STARLING_FLOAT64;
    case at::kBool: return STARLING_BOOL;
    default: return std::nullopt;
  }
}

// As NCCL's backend: on booleans a sum is "any" and a product is "all", so that nothing overflows.
starling_reduce_op boolean_op(c10d::ReduceOp::RedOpType op, const char* title) {
  switch (op) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::MAX:
    case c10d::ReduceOp::BOR: return STARLING_MAX;
    case c10d::ReduceOp::PRODUCT:
    case c10d::ReduceOp::MIN:
    case c10d::ReduceOp::BAND: return STARLING_MIN;
    case c10d::ReduceOp::BXOR: return STARLING_BXOR;
    default: TORCH_CHECK_TYPE(false, title, ": Cannot use ReduceOp.AVG or PREMUL_SUM with Boolean tensors");
  }
}

starling_reduce_op library_op(c10d::ReduceOp::RedOpType op, const at::Tensor& tensor, const char* title) {
  const bool integral = at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
  switch (op) {
    case c10d::ReduceOp::SUM: return STARLING_SUM;
    case c10d::ReduceOp::AVG: return STARLING_AVG;
    case c10d::ReduceOp::PRODUCT: return STARLING_PROD;
    case c10d::ReduceOp::MIN: return STARLING_MIN;
    case c10d::ReduceOp::MAX: return STARLING_MAX;
    case c10d::ReduceOp::PREMUL_SUM: return STARLING_PREMUL_SUM;
    case c10d::ReduceOp::BAND:
    case c10d::ReduceOp::BOR:
    case c10d::ReduceOp::BXOR:
      TORCH_CHECK(integral, title, ": Cannot use ReduceOp.BAND, BOR or BXOR with non-integral dtype ",
                  tensor.scalar_type());
      return op == c10d::ReduceOp::BAND  ? STARLING_BAND
             : op == c10d::ReduceOp::BOR ? STARLING_BOR
                                         : STARLING_BXOR;
    default: TORCH_CHECK(false, title, ": this ReduceOp is not supported by backend starling");
  }
}

double premul_scalar(const c10d::ReduceOp& op, const char* title) {
  const auto* supplement = dynamic_cast<const PremulSum*>(op.supplement_.get());
  TORCH_CHECK(supplement != nullptr, title, ": PREMUL_SUM carries no factor");
  return supplement->tensor_factor.defined() ? supplement->tensor_factor.item<double>()
                                             : supplement->double_factor;
}

}  // namespace

ElementType movable_type(const at::Tensor& tensor) {
  const at::ScalarType type = tensor.scalar_type();
  const size_t bytes = tensor.element_size();
  if (const auto known = library_type(type)) return {*known, 1, bytes};
  if (at::isComplexType(type)) return {*library_type(c10::toRealValueType(type)), 2, bytes};
  return {STARLING_UINT8, bytes, bytes};
}

Reduction reduction_of(const at::Tensor& tensor, const c10d::ReduceOp& op, const char* title) {
  const at::ScalarType type = tensor.scalar_type();
  const auto kind = static_cast<c10d::ReduceOp::RedOpType>(op);
  if (type == at::kBool) return {movable_type(tensor), boolean_op(kind, title), 0};
  if (at::isComplexType(type)) {
    TORCH_CHECK(c10d::isComplexViewAsRealAllowed(op), title,
                " does not support this ReduceOp on complex tensors");
  } else {
    TORCH_CHECK(library_type(type).has_value(), title, ": Invalid scalar type ", type,
                ": backend starling moves it, but does not compute with it");
  }
  const double scalar = kind == c10d::ReduceOp::PREMUL_SUM ? premul_scalar(op, title) : 0;
  return {movable_type(tensor), library_op(kind, tensor, title), scalar};
}

void check_tensor(const at::Tensor& tensor, const char* title) {
  TORCH_CHECK(tensor.defined(), title, ": the tensor is undefined");
  TORCH_CHECK(tensor.device().is_cpu() || tensor.device().is_cuda(), title,
              ": backend starling takes tensors of the CPU and of CUDA, this one is on ", tensor.device());
  TORCH_CHECK(tensor.layout() == at::kStrided, title, ": tensor has to be dense (strided)");
}

const at::Tensor& single_tensor(const std::vector<at::Tensor>& tensors, const char* title) {
  TORCH_CHECK(tensors.size() == 1, title, ": takes a single tensor, got ", tensors.size());
  check_tensor(tensors.front(), title);
  return tensors.front();
}

void check_alike(const at::Tensor& one, const at::Tensor& other, const char* title) {
  TORCH_CHECK(one.scalar_type() == other.scalar_type(), title,
              ": Invalid scalar type: tensors must have one type, got ", one.scalar_type(), " and ",
              other.scalar_type());
  TORCH_CHECK(one.device() == other.device(), title, ": tensors must be on one device, got ", one.device(),
              " and ", other.device());
}

void* adjacent_data(const std::vector<at::Tensor>& tensors) {
  char* expected = nullptr;
  void* first = nullptr;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    if (!tensor.is_contiguous()) return nullptr;
    auto* data = static_cast<char*>(tensor.data_ptr());
    if (first == nullptr) {
      first = data;
    } else if (data != expected) {
      return nullptr;
    }
    expected = data + tensor.nbytes();
  }
  return first;
}

void copy_elements(const void* source, const at::Tensor& destination) {
  if (destination.numel() == 0) return;
  if (destination.is_contiguous() && destination.is_cpu()) {
    std::memcpy(destination.data_ptr(), source, destination.nbytes());
    return;
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::Tensor view =
      at::from_blob(const_cast<void*>(source), destination.sizes(), destination.options());
  destination.copy_(view, /*non_blocking=*/true);
}

void copy_elements(const at::Tensor& source, void* destination) {
  if (source.numel() == 0) return;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (source.is_cuda()) {
    at::from_blob(destination, source.sizes(), source.options()).copy_(source, /*non_blocking=*/true);
    return;
  }
  const at::Tensor ordered = source.contiguous();
  std::memcpy(destination, ordered.data_ptr(), ordered.nbytes());
}

}  // namespace starling::torch_adapter
