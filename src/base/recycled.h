// Memory for one kind of object that one thread makes and another ends, for std::allocate_shared: what is
// given back by any thread is taken again by the next that needs some, without a lock of the heap's. It grows
// to as many as ever lived at once.
#pragma once
#include <atomic>
#include <cstddef>
#include <new>

#include "base/prefetch.h"

namespace starling {

template <class T>
class Recycled {
 public:
  using value_type = T;

  Recycled() = default;
  template <class Other>
  Recycled(const Recycled<Other>&) {}
  bool operator==(const Recycled&) const { return true; }

  T* allocate(size_t) {
    if (kSanitized) return static_cast<T*>(::operator new(sizeof(Place)));
    Own& own = mine();
    // All at once: so no other thread takes one that came back between a look at it and the exchange.
    // Acquire: pairs with the release in push(); whoever gave it back is done with it.
    if (own.first == nullptr) own.first = returned().exchange(nullptr, std::memory_order_acquire);
    Place* const place = own.first;
    if (place == nullptr) return static_cast<T*>(::operator new(sizeof(Place)));
    own.first = place->next;
    if (own.first != nullptr) prefetch_to_write(own.first);
    return reinterpret_cast<T*>(place);
  }
  void deallocate(T* object, size_t) noexcept {
    if (kSanitized) return ::operator delete(object);
    push(::new (static_cast<void*>(object)) Place{nullptr});
  }

 private:
#if defined(__SANITIZE_ADDRESS__)
  static constexpr bool kSanitized = true;  // it finds uses of what was freed
#else
  static constexpr bool kSanitized = false;
#endif

  union Place {
    Place* next;
    alignas(T) std::byte memory[sizeof(T)];
  };
  // What a thread took and has not used; the others get it when it ends.
  struct Own {
    Place* first = nullptr;
    ~Own() {
      while (first != nullptr) {
        Place* const place = first;
        first = place->next;
        push(place);
      }
    }
  };

  static Own& mine() {
    thread_local Own own;
    return own;
  }
  static std::atomic<Place*>& returned() {
    static std::atomic<Place*> places{nullptr};
    return places;
  }
  static void push(Place* place) {
    std::atomic<Place*>& places = returned();
    place->next = places.load(std::memory_order_relaxed);
    // Release: pairs with the acquire in allocate(). What others pushed before stays released:
    // read-modify-writes continue their sequence.
    while (!places.compare_exchange_weak(place->next, place, std::memory_order_release,
                                         std::memory_order_relaxed)) {}
  }
};

}  // namespace starling
