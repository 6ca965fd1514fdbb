// Hints for memory that another thread had last and this one writes soon: its lines come meanwhile.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/portable.h"

namespace starling {

// As it lies there: the lines that hold [memory, memory + bytes). Any address.
inline void prefetch_to_write(const void* memory, std::size_t bytes) {
  const auto begin = uintptr_t(memory), end = begin + bytes;
  for (uintptr_t line = begin & ~uintptr_t(kCacheLineBytes - 1); line < end; line += kCacheLineBytes)
    __builtin_prefetch(reinterpret_cast<const void*>(line), 1);
}

template <class T>
void prefetch_to_write(const T* object) {
  prefetch_to_write(object, sizeof(T));
}
template <class T>
void prefetch_to_read(const T* object) {
  __builtin_prefetch(object, 0);
}

}  // namespace starling
