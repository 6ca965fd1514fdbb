// Test data of which every reduction is exact in every type: what a rank puts in, and what must come out.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "device/element.h"
#include "wire/types.h"

namespace starling::bench {

inline constexpr const char* kTypeNames[] = {"int8",    "uint8",   "int16",  "uint16",  "int32",
                                             "uint32",  "int64",   "uint64", "float16", "bfloat16",
                                             "float32", "float64", "bool"};
inline constexpr const char* kOpNames[] = {"sum",        "prod", "min", "max", "avg",
                                           "premul_sum", "band", "bor", "bxor"};

template <size_t N>
uint8_t index_of(const char* const (&names)[N], const std::string& name, const char* what) {
  for (size_t k = 0; k < N; ++k)
    if (name == names[k]) return uint8_t(k);
  throw std::runtime_error(std::string(what) + " '" + name + "' does not exist");
}

// Small whole numbers; for a product only ones, and a two in one rank's part, so that nothing overflows.
inline int64_t input_value(ReduceOp op, int rank, size_t element, int size) {
  if (op == ReduceOp::kProd) return (element + size_t(rank)) % size_t(size) == 0 ? 2 : 1;
  return int64_t((element * 7 + size_t(rank) * 3) % 13);
}

inline double reduced_value(ReduceOp op, size_t element, int size) {
  int64_t result = input_value(op, 0, element, size);
  for (int r = 1; r < size; ++r) {
    const int64_t x = input_value(op, r, element, size);
    switch (op) {
      case ReduceOp::kProd: result *= x; break;
      case ReduceOp::kMin: result = std::min(result, x); break;
      case ReduceOp::kMax: result = std::max(result, x); break;
      case ReduceOp::kBand: result &= x; break;
      case ReduceOp::kBor: result |= x; break;
      case ReduceOp::kBxor: result ^= x; break;
      default: result += x;
    }
  }
  return op == ReduceOp::kAvg ? double(result) / size : double(result);
}

// Calls `use` with a null pointer of the type that stores the elements.
template <class Use>
void with_type(DataType type, Use&& use) {
  switch (type) {
    case DataType::kInt8: return use(static_cast<int8_t*>(nullptr));
    case DataType::kUint8: return use(static_cast<uint8_t*>(nullptr));
    case DataType::kInt16: return use(static_cast<int16_t*>(nullptr));
    case DataType::kUint16: return use(static_cast<uint16_t*>(nullptr));
    case DataType::kInt32: return use(static_cast<int32_t*>(nullptr));
    case DataType::kUint32: return use(static_cast<uint32_t*>(nullptr));
    case DataType::kInt64: return use(static_cast<int64_t*>(nullptr));
    case DataType::kUint64: return use(static_cast<uint64_t*>(nullptr));
    case DataType::kFloat16: return use(static_cast<device::Float16*>(nullptr));
    case DataType::kBfloat16: return use(static_cast<device::Bfloat16*>(nullptr));
    case DataType::kFloat32: return use(static_cast<float*>(nullptr));
    case DataType::kFloat64: return use(static_cast<double*>(nullptr));
    case DataType::kBool: throw std::runtime_error("bool is not measured; take uint8");
  }
}

template <class T>
void put(T& to, double value) {
  if constexpr (std::is_same_v<T, device::Float16>)
    to = device::narrow_float16(float(value));
  else if constexpr (std::is_same_v<T, device::Bfloat16>)
    to = device::narrow_bfloat16(float(value));
  else
    to = T(value);
}

template <class T>
double value_of(T x) {
  if constexpr (std::is_same_v<T, device::Float16> || std::is_same_v<T, device::Bfloat16>)
    return device::widen(x);
  else
    return double(x);
}

// Averages are rounded to the type, by the library and perhaps twice; all else is exact.
template <class T>
bool equal(T seen, double expected, ReduceOp op) {
  const double tolerance =
      op == ReduceOp::kAvg ? (sizeof(T) <= 2 ? 0.02 : 1e-5) * std::max(1.0, expected) : 0.0;
  const bool whole = op == ReduceOp::kAvg && std::is_integral_v<T>;
  return std::fabs(value_of(seen) - expected) <= (whole ? 1.0 : tolerance);
}

}  // namespace starling::bench
