// STARLING_ASSERT: an invariant of ours is broken. Live in every build, on the host and on the device.
// What a caller can cause is not an invariant: throw Error (base/error.h) instead.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "base/portable.h"

namespace starling {

[[noreturn]] STARLING_HOST_DEVICE inline void assert_failed(const char* condition, const char* message,
                                                            const char* file, int line) {
#if defined(__CUDA_ARCH__)
  printf("%s:%d: starling bug: %s (%s is false)\n", file, line, message, condition);
  __trap();
#else
  std::fprintf(stderr, "%s:%d: starling bug: %s (%s is false)\n", file, line, message, condition);
  std::fflush(stderr);
  std::abort();
#endif
}

}  // namespace starling

#define STARLING_ASSERT(condition, message)                                 \
  do {                                                                      \
    if (!(condition)) [[unlikely]]                                          \
      ::starling::assert_failed(#condition, (message), __FILE__, __LINE__); \
  } while (false)
