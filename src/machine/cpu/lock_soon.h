// A mutex whose holders need it for a microsecond or two: whoever finds it taken looks again for about so
// long before it sleeps, since to be woken takes longer than that.
#pragma once
#include <mutex>

#include "machine/cpu/machine.h"

namespace starling::cpu {

template <class Mutex>
std::unique_lock<Mutex> lock_soon(Mutex& mutex) {
  constexpr int kLooks = 100;  // some 5 us
  std::unique_lock lock(mutex, std::try_to_lock);
  for (int k = 0; k < kLooks && !lock.owns_lock(); ++k) {
    relax();
    lock.try_lock();
  }
  if (!lock.owns_lock()) lock.lock();
  return lock;
}

}  // namespace starling::cpu
