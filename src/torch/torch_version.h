// What differs between the versions of PyTorch that the adapter is compiled against (2.11 to the newest).
//
// c10d::Backend has 46 virtual functions in 2.11, 49 in 2.12 and 2.13, 67 in 2.14 and 74 in 2.15. The adapter
// overrides only functions that all of them have (of a renamed pair the old name: the newer classes forward
// it both ways), so the list below stays short.
#pragma once

#include <torch/headeronly/version.h>

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#define STARLING_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

#if !STARLING_TORCH_AT_LEAST(2, 11)
#error "The starling backend needs PyTorch 2.11 or newer."
#endif

namespace starling::torch_adapter {

#if STARLING_TORCH_AT_LEAST(2, 13)
using PremulSum = c10d::PreMulSumSupplement;
inline c10d::ReduceOp make_premul_sum(double factor) { return c10d::makePreMulSum(factor); }
inline constexpr auto kReduceScatterCoalesced = c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED;
#else
using PremulSum = c10d::NCCLPreMulSumSupplement;
inline c10d::ReduceOp make_premul_sum(double factor) { return c10d::makeNCCLPreMulSum(factor); }
inline constexpr auto kReduceScatterCoalesced = c10d::OpType::COALESCED;
#endif

}  // namespace starling::torch_adapter
