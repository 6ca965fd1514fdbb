// Sixteen bytes that move together, and the elements in them.
#pragma once
#include <cstdint>

#include "base/portable.h"

namespace starling {

struct alignas(16) Pack {
  uint64_t low, high;
};

template <class T>
union PackElements {
  Pack pack;
  T elements[16 / sizeof(T)];
  STARLING_HOST_DEVICE PackElements() {}
};

}  // namespace starling
