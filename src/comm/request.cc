#include "comm/request.h"

#include <climits>

#include "machine/cpu/futex.h"

namespace starling {

bool Request::complete(starling_status status, std::string message) {
  if (claimed_.exchange(1, std::memory_order_acq_rel) != 0) return false;
  status_ = status;
  message_ = std::move(message);
  done_.store(1, std::memory_order_seq_cst);
  if (asleep_.load(std::memory_order_seq_cst) != 0)
    cpu::futex_wake_all(reinterpret_cast<const uint32_t*>(&done_));
  return true;
}

bool Request::wait(int64_t timeout_ns) const {
  const uint64_t start = cpu::monotonic_ns();
  asleep_.store(1, std::memory_order_seq_cst);
  while (done_.load(std::memory_order_seq_cst) == 0) {
    uint64_t left = UINT64_C(1'000'000'000);
    if (timeout_ns >= 0) {
      const uint64_t passed = cpu::monotonic_ns() - start;
      if (passed >= uint64_t(timeout_ns)) return false;
      left = uint64_t(timeout_ns) - passed;
    }
    cpu::futex_wait(reinterpret_cast<const uint32_t*>(&done_), 0, left);
  }
  return true;
}

}  // namespace starling
