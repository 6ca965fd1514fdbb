// Memory where the caller's buffers bounce: blocks copy there what peers read, where peers cannot open a
// buffer (docs/design/0011-direct.md). Few large allocations, which peers open once and which stay.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "base/quick_mutex.h"

namespace starling {

class Bounces {
 public:
  static constexpr uint64_t kSlabBytes = uint64_t(64) << 20;

  // `allocate`: memory that peers can open, for as long as this lives; null: there is not so much.
  explicit Bounces(std::function<std::byte*(uint64_t bytes)> allocate) : allocate_(std::move(allocate)) {}

  // 256-byte aligned, and no more than twice of it is taken. Any thread. Throws Error(exhausted).
  std::byte* take(uint64_t bytes);
  void give(std::byte* memory, uint64_t bytes);

 private:
  std::byte* take_known(uint64_t size);
  bool grow(uint64_t size);

  std::function<std::byte*(uint64_t)> allocate_;
  std::mutex growing_;  // by one thread; before the next
  QuickMutex mutex_;  // guards all below: who gives back has other locks
  std::multimap<uint64_t, std::byte*> free_;  // by size
  std::byte* rest_ = nullptr;  // of the last slab
  uint64_t rest_bytes_ = 0;
};

}  // namespace starling
