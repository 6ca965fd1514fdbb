// The words that a proxy shares with blocks: as much of a device::Machine as device/carrying.h asks for.
#pragma once
#include <atomic>
#include <cstdint>

namespace starling::link::carry {

struct Words {
  static uint64_t load_acquire(const uint64_t* word) {
    return std::atomic_ref<uint64_t>(*const_cast<uint64_t*>(word)).load(std::memory_order_acquire);
  }
  static uint64_t load_relaxed(const uint64_t* word) {
    return std::atomic_ref<uint64_t>(*const_cast<uint64_t*>(word)).load(std::memory_order_relaxed);
  }
  static void store_release(uint64_t* word, uint64_t value) {
    std::atomic_ref<uint64_t>(*word).store(value, std::memory_order_release);
  }
};

}  // namespace starling::link::carry
