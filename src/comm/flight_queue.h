// The operations of a lane that are under way, in the order of their sequence. One lies where it was put, and
// its place is used again: operations that come and go allocate nothing, and the thread that completes one
// touches what it needs of it and no more, since the next caller writes there.
#pragma once
#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "base/prefetch.h"
#include "comm/flight.h"

namespace starling {

class FlightQueue {
 public:
  class Iterator {
   public:
    Iterator(FlightQueue& queue, size_t k) : queue_(queue), k_(k) {}
    Flight& operator*() const { return queue_[k_]; }
    Iterator& operator++() {
      ++k_;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return k_ != other.k_; }

   private:
    FlightQueue& queue_;
    size_t k_;
  };

  bool empty() const { return count_ == 0; }
  size_t size() const { return count_; }
  Flight& operator[](size_t k) { return *place(k); }
  const Flight& operator[](size_t k) const { return *ring_[(first_ + k) & (ring_.size() - 1)]; }
  Flight& front() { return (*this)[0]; }
  const Flight& front() const { return (*this)[0]; }
  Flight& back() { return (*this)[count_ - 1]; }
  Iterator begin() { return {*this, 0}; }
  Iterator end() { return {*this, count_}; }

  Flight& push_back(Flight&& flight) {
    if (count_ == ring_.size()) grow();
    if (spare_.size() > kSpare) spare_.resize(kSpare);
    std::unique_ptr<Flight>& last = place(count_);
    if (spare_.empty()) {
      last = std::make_unique<Flight>(std::move(flight));
    } else {
      // The one that was taken first: its lines have been on their way here for longest.
      last = std::move(spare_.front());
      spare_.erase(spare_.begin());
      *last = std::move(flight);
    }
    ++count_;
    if (!spare_.empty()) prefetch(*spare_.front());
    return *last;
  }

  // Removes it; it lies there until the next one is added. Mostly it is the first.
  Flight& take(size_t k) {
    Flight& taken = *place(k);
    spare_.push_back(std::move(place(k)));
    for (; k > 0; --k) place(k).swap(place(k - 1));  // the gap goes to the front
    ++first_;
    --count_;
    return taken;
  }

 private:
  static constexpr size_t kSpare = 64;  // what a lane has on a device at most

  // What the thread that ended it has written of it.
  static void prefetch(const Flight& flight) {
    prefetch_to_write(&flight, offsetof(Flight, lowered));
    prefetch_to_write(&flight.lowered.bounced);
  }

  std::unique_ptr<Flight>& place(size_t k) { return ring_[(first_ + k) & (ring_.size() - 1)]; }
  void grow() {
    std::rotate(ring_.begin(), ring_.begin() + ptrdiff_t(ring_.empty() ? 0 : first_ & (ring_.size() - 1)),
                ring_.end());
    first_ = 0;
    ring_.resize(ring_.empty() ? 8 : 2 * ring_.size());
  }

  std::vector<std::unique_ptr<Flight>> ring_;  // a power of two; null where there is none
  size_t first_ = 0;  // its place, modulo their number
  size_t count_ = 0;
  std::vector<std::unique_ptr<Flight>> spare_;
};

}  // namespace starling
