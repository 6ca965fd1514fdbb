// Element types and reductions, the same arithmetic on every machine.
// Half-precision types accumulate in float over all operands of an instruction and are rounded once.
#pragma once
#include <cstdint>
#include <cstring>

#include "base/portable.h"
#include "wire/types.h"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace starling::device {

STARLING_HOST_DEVICE inline uint32_t float_bits(float value) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(value);
#else
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
#endif
}

STARLING_HOST_DEVICE inline float bits_float(uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
#endif
}

struct Bfloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};
struct Bool {
  uint8_t value;
};

STARLING_HOST_DEVICE inline float widen(Bfloat16 x) { return bits_float(uint32_t(x.bits) << 16); }

// Round to nearest even; a NaN stays a NaN.
STARLING_HOST_DEVICE inline Bfloat16 narrow_bfloat16(float x) {
#if defined(__CUDA_ARCH__)
  return {__bfloat16_as_ushort(__floats2bfloat162_rn(x, 0.0f).x)};  // of one there is a slower instruction
#else
  const uint32_t bits = float_bits(x);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40;
  return {uint16_t((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded)};
#endif
}

#if defined(__CUDA_ARCH__)
STARLING_HOST_DEVICE inline float widen(Float16 x) { return __half2float(__ushort_as_half(x.bits)); }
STARLING_HOST_DEVICE inline Float16 narrow_float16(float x) { return {__half_as_ushort(__float2half_rn(x))}; }
#elif defined(__FLT16_MAX__) && !defined(__CUDACC__)
inline float widen(Float16 x) {
  _Float16 half;
  std::memcpy(&half, &x.bits, 2);
  return float(half);
}
inline Float16 narrow_float16(float x) {
  const _Float16 half = _Float16(x);
  Float16 result;
  std::memcpy(&result.bits, &half, 2);
  return result;
}
#else
inline float widen(Float16 x) {
  const uint32_t sign = uint32_t(x.bits & 0x8000) << 16;
  const uint32_t magnitude = x.bits & 0x7fff;
  if (magnitude >= 0x7c00) return bits_float(sign | 0x7f800000 | ((magnitude & 0x3ff) << 13));
  if (magnitude < 0x400) {  // subnormal: magnitude * 2^-24
    const float value = float(magnitude) * 5.9604644775390625e-8f;
    return bits_float(sign | float_bits(value));
  }
  return bits_float(sign | ((magnitude << 13) + 0x38000000));
}
inline Float16 narrow_float16(float x) {
  const uint32_t bits = float_bits(x);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return {uint16_t(sign | 0x7e00)};
  if (magnitude >= 0x477ff000) return {uint16_t(sign | 0x7c00)};
  if (magnitude < 0x38800000) {  // subnormal: adding 0.5 lets the hardware round at bit 2^-24
    const float shifted = bits_float(magnitude) + 0.5f;
    return {uint16_t(sign | (float_bits(shifted) - 0x3f000000))};
  }
  const uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
  return {uint16_t(sign | ((rounded - 0x38000000) >> 13))};
}
#endif

// T: as stored; Accumulator: as reduced.
template <class T>
struct Element {
  using Accumulator = T;
  STARLING_HOST_DEVICE static T load(T x) { return x; }
  STARLING_HOST_DEVICE static T store(T x) { return x; }
  STARLING_HOST_DEVICE static T scale(T x, double factor) { return T(double(x) * factor); }
  STARLING_HOST_DEVICE static T divide(T x, uint32_t n) {
    if constexpr (T(1) / T(2) != T(0))
      return x / T(n);
    else if constexpr (T(-1) < T(0))
      return T(int64_t(x) / int64_t(n));  // truncates, as NCCL's avg does
    else
      return T(uint64_t(x) / n);
  }
};
template <>
struct Element<float> {
  using Accumulator = float;
  STARLING_HOST_DEVICE static float load(float x) { return x; }
  STARLING_HOST_DEVICE static float store(float x) { return x; }
  STARLING_HOST_DEVICE static float scale(float x, double factor) { return x * float(factor); }
  STARLING_HOST_DEVICE static float divide(float x, uint32_t n) { return x / float(n); }
};
template <class Half>
struct HalfElement {
  using Accumulator = float;
  STARLING_HOST_DEVICE static float load(Half x) { return widen(x); }
  // Rounded as if it had been sent: a rank that adds its own input must get what its peers receive of it.
  STARLING_HOST_DEVICE static float scale(float x, double factor) {
    return widen(Element<Half>::store(x * float(factor)));
  }
  STARLING_HOST_DEVICE static float divide(float x, uint32_t n) { return x / float(n); }
};
template <>
struct Element<Bfloat16> : HalfElement<Bfloat16> {
  STARLING_HOST_DEVICE static Bfloat16 store(float x) { return narrow_bfloat16(x); }
};
template <>
struct Element<Float16> : HalfElement<Float16> {
  STARLING_HOST_DEVICE static Float16 store(float x) { return narrow_float16(x); }
};
template <>
struct Element<Bool> {
  using Accumulator = uint8_t;
  STARLING_HOST_DEVICE static uint8_t load(Bool x) { return x.value != 0; }
  STARLING_HOST_DEVICE static Bool store(uint8_t x) { return {uint8_t(x != 0)}; }
  STARLING_HOST_DEVICE static uint8_t scale(uint8_t x, double factor) { return x && factor != 0; }
  STARLING_HOST_DEVICE static uint8_t divide(uint8_t x, uint32_t) { return x; }
};

struct Sum {
  template <class A>
  STARLING_HOST_DEVICE static A apply(A a, A b) {
    return A(a + b);
  }
};
struct Prod {
  template <class A>
  STARLING_HOST_DEVICE static A apply(A a, A b) {
    return A(a * b);
  }
};
struct Min {
  template <class A>
  STARLING_HOST_DEVICE static A apply(A a, A b) {
    return b < a ? b : a;
  }
};
struct Max {
  template <class A>
  STARLING_HOST_DEVICE static A apply(A a, A b) {
    return a < b ? b : a;
  }
};
struct Band {
  template <class A>
  STARLING_HOST_DEVICE static A apply(A a, A b) {
    return A(a & b);
  }
};
struct Bor {
  template <class A>
  STARLING_HOST_DEVICE static A apply(A a, A b) {
    return A(a | b);
  }
};
struct Bxor {
  template <class A>
  STARLING_HOST_DEVICE static A apply(A a, A b) {
    return A(a ^ b);
  }
};

// uint8_t addition and product of bools would wrap; a bool's sum is "any", its product "all".
STARLING_HOST_DEVICE constexpr ReduceOp reduction_of(ReduceOp op, DataType type) {
  if (op == ReduceOp::kAvg || op == ReduceOp::kPremulSum) op = ReduceOp::kSum;
  if (type == DataType::kBool) {
    if (op == ReduceOp::kSum) return ReduceOp::kMax;
    if (op == ReduceOp::kProd) return ReduceOp::kMin;
  }
  return op;
}

// Calls f(T{}) with the element type, and f(T{}, Op{}) below with the reduction.
template <class F>
STARLING_HOST_DEVICE void with_type(DataType type, F&& f) {
  switch (type) {
    case DataType::kInt8: return f(int8_t{});
    case DataType::kUint8: return f(uint8_t{});
    case DataType::kInt16: return f(int16_t{});
    case DataType::kUint16: return f(uint16_t{});
    case DataType::kInt32: return f(int32_t{});
    case DataType::kUint32: return f(uint32_t{});
    case DataType::kInt64: return f(int64_t{});
    case DataType::kUint64: return f(uint64_t{});
    case DataType::kFloat16: return f(Float16{});
    case DataType::kBfloat16: return f(Bfloat16{});
    case DataType::kFloat32: return f(float{});
    case DataType::kFloat64: return f(double{});
    case DataType::kBool: return f(Bool{});
  }
}

template <class T>
inline constexpr bool kHasBits = T(1) == T(1) && T(1) / T(2) == T(0);  // integers
template <>
inline constexpr bool kHasBits<Bfloat16> = false;
template <>
inline constexpr bool kHasBits<Float16> = false;
template <>
inline constexpr bool kHasBits<Bool> = true;

// One element type's row of the table of types and reductions.
template <class T, class F>
STARLING_HOST_DEVICE void with_op(T element, DataType type, ReduceOp op, F&& f) {
  switch (reduction_of(op, type)) {
    case ReduceOp::kSum: return f(element, Sum{});
    case ReduceOp::kProd: return f(element, Prod{});
    case ReduceOp::kMin: return f(element, Min{});
    case ReduceOp::kMax: return f(element, Max{});
    default: break;
  }
  if constexpr (kHasBits<T>) {
    switch (op) {
      case ReduceOp::kBand: return f(element, Band{});
      case ReduceOp::kBor: return f(element, Bor{});
      case ReduceOp::kBxor: return f(element, Bxor{});
      default: break;
    }
  }
}

template <class F>
STARLING_HOST_DEVICE void with_type_and_op(DataType type, ReduceOp op, F&& f) {
  with_type(type, [&](auto element) { with_op(element, type, op, f); });
}

}  // namespace starling::device
