#include "machine/registered/own.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>

#include "base/error.h"

namespace starling {

uint16_t OwnRegistrations::number_of(const void* memory, const std::string& place) {
  const std::lock_guard lock(mutex_);
  const std::optional<Allocation> found = allocations_.find(uint64_t(memory));
  if (!found)
    throw Error(
        Code::unsupported,
        "a buffer of " + place +
            " is not of cudaMalloc (but of cudaMallocAsync, an expandable segment, cuMemCreate, managed "
            "or in host memory): other processes cannot open it",
        "set STARLING_PULL=0 and STARLING_SM_FREE=0 on all ranks, or PYTORCH_CUDA_ALLOC_CONF without "
        "expandable_segments:True "
        "and backend:cudaMallocAsync");
  if (const auto known = by_base_.find(found->base); known != by_base_.end()) {
    const Allocation& earlier = known_[known->second];
    if (earlier.identity == found->identity && earlier.bytes == found->bytes) return known->second;
  }
  retire_overlapped(*found);
  uint16_t number = take_number();
  if (number == 0) {
    retire_what_is_gone();
    number = take_number();
  }
  if (number == 0)
    throw Error(
        Code::exhausted,
        "a rank has " + std::to_string(kMaxRegistrations - 1) + " allocations on " + place +
            " that peers have opened, or had when they were freed",
        "set STARLING_PULL=0 and STARLING_SM_FREE=0 on all ranks, or use fewer and larger allocations");
  publish(number, *found);
  return number;
}

// What was registered where another allocation lies now was freed.
void OwnRegistrations::retire_overlapped(const Allocation& by) {
  auto at = by_base_.lower_bound(by.base);
  if (at != by_base_.begin() && std::prev(at)->first + known_[std::prev(at)->second].bytes > by.base) --at;
  while (at != by_base_.end() && at->first < by.base + by.bytes) {
    retire(at->second);
    at = by_base_.erase(at);
  }
}

void OwnRegistrations::retire_what_is_gone() {
  std::erase_if(by_base_, [this](const auto& entry) {
    const auto [base, number] = entry;
    const std::optional<Allocation> now = allocations_.find(base);
    if (now && now->identity == known_[number].identity) return false;
    retire(number);
    return true;
  });
}

void OwnRegistrations::retire(uint16_t number) {
  // Sequentially consistent, as the look in take_number(): a reader that counts itself after that look sees
  // this.
  std::atomic_ref<uint64_t>(table_.entries[number].state).store(kRetired, std::memory_order_seq_cst);
  retired_.push_back(number);
}

uint16_t OwnRegistrations::take_number() {
  // Numbers that were never used first: who frees and allocates all the time disturbs readers least.
  const uint64_t used =
      std::max<uint64_t>(std::atomic_ref<uint64_t>(table_.used).load(std::memory_order_relaxed), 1);
  if (used < kMaxRegistrations) {
    // Relaxed: the release of `published` comes after.
    std::atomic_ref<uint64_t>(table_.used).store(used + 1, std::memory_order_relaxed);
    return uint16_t(used);
  }
  // Both sides agree: we retired it, and all that had it open have closed it. Pairs with the additions and
  // look of PeerRegistrations::open(): who adds itself later finds it retired.
  const auto free = std::find_if(retired_.begin(), retired_.end(), [this](uint16_t number) {
    return std::atomic_ref<uint64_t>(table_.entries[number].openers).load(std::memory_order_seq_cst) == 0;
  });
  if (free == retired_.end()) return 0;
  const uint16_t number = *free;
  retired_.erase(free);
  return number;
}

void OwnRegistrations::publish(uint16_t number, const Allocation& allocation) {
  Registration& entry = table_.entries[number];
  try {
    allocations_.export_to(allocation, entry.handle);
  } catch (...) {
    retired_.push_back(number);
    throw;
  }
  entry.base = allocation.base;
  entry.bytes = allocation.bytes;
  entry.identity = allocation.identity;
  // Release, as all of that order: the fields; pairs with the looks in PeerRegistrations::open().
  std::atomic_ref<uint64_t>(entry.state).store(kPublished, std::memory_order_seq_cst);
  // Release: pairs with the acquire in PeerRegistrations::has_news().
  std::atomic_ref<uint64_t>(table_.published).fetch_add(1, std::memory_order_release);
  known_[number] = allocation;
  by_base_.emplace(allocation.base, number);
}

}  // namespace starling
