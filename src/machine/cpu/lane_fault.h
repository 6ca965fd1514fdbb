// Breaking a lane in one rank's region: by hosts, and by proxies for hosts elsewhere.
#pragma once
#include <atomic>
#include <cstring>

#include "wire/arena.h"

namespace starling::cpu {

// `shared` lies in the segment of `owner`; the first fault stays. `origin`: rank in the lane of who breaks
// it.
inline void write_fault(LaneShared* shared, ArenaHeader* owner, uint32_t origin, uint64_t kind,
                        uint64_t sequence, const char* text) {
  uint64_t nobody = 0;
  if (!std::atomic_ref<uint64_t>(shared->claim).compare_exchange_strong(nobody, origin + 1)) return;
  shared->fault_sequence = sequence;
  // The region was zeroed: the text ends with a 0.
  std::memcpy(shared->fault_text, text, strnlen(text, sizeof(shared->fault_text) - 1));
  // Release: the text before the fault; pairs with the acquires of `fault` in hosts, daemons and proxies.
  std::atomic_ref<uint64_t>(shared->fault).store(kind, std::memory_order_release);
  // Release: the fault before the count, by which the owner's poller knows that it has to look for it.
  std::atomic_ref<uint64_t>(owner->faults).fetch_add(1, std::memory_order_release);
}

}  // namespace starling::cpu
