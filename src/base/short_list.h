// A list of at most N elements that lies where it is declared: what a call builds and drops allocates
// nothing.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "base/assert.h"

namespace starling {

template <class T, size_t N>
class ShortList {
 public:
  ShortList() = default;
  ~ShortList() { std::destroy_n(data(), size_); }
  ShortList(const ShortList&) = delete;
  ShortList& operator=(const ShortList&) = delete;

  // From what T begins with, if it is an aggregate.
  template <class... Parts>
  T& emplace_back(Parts&&... parts) {
    STARLING_ASSERT(size_ < N, "a short list is full");
    T* const element = ::new (static_cast<void*>(data() + size_)) T(std::forward<Parts>(parts)...);
    ++size_;
    return *element;
  }
  T& push_back(T&& element) { return emplace_back(std::move(element)); }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t k) { return data()[k]; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  operator std::span<T>() { return {data(), size_}; }
  operator std::span<const T>() { return {data(), size_}; }

 private:
  T* data() { return reinterpret_cast<T*>(memory_); }

  alignas(T) std::byte memory_[N * sizeof(T)];
  size_t size_ = 0;
};

}  // namespace starling
