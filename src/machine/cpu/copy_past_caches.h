// A copy of what is not read again soon.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace starling::cpu {

// The old bytes of the destination are not fetched into the cache first.
inline void copy_past_caches(std::byte* to, const std::byte* from, uint64_t bytes) {
#if defined(__SSE2__)
  const uint64_t head = (64 - (uintptr_t(to) & 63)) & 63;  // whole lines are written at once
  if (bytes < head + 64) {
    std::memcpy(to, from, bytes);
    return;
  }
  std::memcpy(to, from, head);
  to += head;
  from += head;
  bytes -= head;
  for (; bytes >= 64; bytes -= 64, to += 64, from += 64) {
    const auto* source = reinterpret_cast<const __m128i*>(from);
    auto* target = reinterpret_cast<__m128i*>(to);
    const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  _mm_sfence();  // such stores obey no later release by themselves
#endif
  std::memcpy(to, from, bytes);
}

}  // namespace starling::cpu
