// A piece of address space that is handed out from its start and forgotten as a whole.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace starling::sim {

class Region {
 public:
  explicit Region(size_t capacity_bytes);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  // 64-byte aligned. With `zeroed` given at reset() the bytes are zero.
  std::byte* allocate(size_t bytes);

  template <class T>
  T* make(size_t count = 1) {
    return reinterpret_cast<T*>(allocate(sizeof(T) * count));
  }

  void reset(bool zero);
  // All of it is zero again, and gives its pages back.
  void forget();

  bool contains(const void* p) const { return offset(p) < used_; }
  size_t offset(const void* p) const { return size_t(static_cast<const std::byte*>(p) - base_); }
  size_t used() const { return used_; }
  std::span<const std::byte> bytes() const { return {base_, used_}; }

 private:
  std::byte* base_;
  size_t capacity_;
  size_t used_ = 0;
};

}  // namespace starling::sim
