// What host and device compilers call by different names.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define STARLING_HOST_DEVICE __host__ __device__
#define STARLING_DEVICE __device__
#else
#define STARLING_HOST_DEVICE
#define STARLING_DEVICE
#endif

#if defined(__CUDACC__)
#define STARLING_INLINE __forceinline__
#else
#define STARLING_INLINE inline __attribute__((always_inline))
#endif

#if defined(__CUDA_ARCH__)
#define STARLING_UNROLL _Pragma("unroll")
#define STARLING_ROLLED _Pragma("unroll 1")
#else
#define STARLING_UNROLL
#define STARLING_ROLLED
#endif

// Of an address that is neither a block's fast memory nor a thread's own: it is not asked at each access.
#if defined(__CUDA_ARCH__)
#define STARLING_ASSUME_GLOBAL(address) __builtin_assume(__isGlobal(address))
#else
#define STARLING_ASSUME_GLOBAL(address) static_cast<void>(address)
#endif

namespace starling {

// Two counters with different writers stand at least this far apart.
inline constexpr std::size_t kCacheLineBytes = 64;

template <typename T>
STARLING_HOST_DEVICE constexpr T round_up(T value, T multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

template <typename T>
STARLING_HOST_DEVICE constexpr T ceil_div(T value, T divisor) {
  return (value + divisor - 1) / divisor;
}

}  // namespace starling
