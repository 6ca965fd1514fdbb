#include "machine/registered/own.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/error.h"

namespace starling {
namespace {

constexpr size_t kMostRefused = 64;

}  // namespace

uint16_t OwnRegistrations::number_of(const void* memory, Need need, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  std::optional<Allocation> found = allocations_.find(uint64_t(memory), bytes);
  if (!found) return 0;
  if (const uint16_t known = published_as(*found)) return known;
  if (need == Need::kMay && std::find(refused_.begin(), refused_.end(), *found) != refused_.end()) {
    allocations_.loosen(*found);
    return 0;
  }
  retire_overlapped(*found);
  uint16_t number = 0;
  if (need == Need::kMust || has_room(*found)) number = take_number(need);
  if (number == 0) {
    retire_what_is_gone();
    if (need == Need::kMust || has_room(*found)) number = take_number(need);
  }
  // Again: what was found may have been let go of with those that were there before.
  if (number != 0 && allocations_.find(uint64_t(memory), bytes) == found && publish(number, *found)) {
    must_[number] = need == Need::kMust;
    return number;
  }
  allocations_.loosen(*found);
  if (refused_.size() == kMostRefused) refused_.clear();  // there may be room again
  refused_.push_back(*found);
  return 0;
}

uint16_t OwnRegistrations::published_as(const Allocation& allocation) const {
  const auto [begin, end] = by_base_.equal_range(allocation.base);
  for (auto at = begin; at != end; ++at)
    if (known_[at->second] == allocation) return at->second;
  return 0;
}

bool OwnRegistrations::has_room(const Allocation& allocation) {
  const uint64_t held = held_bytes();
  return held <= most_bytes_ && allocation.bytes <= most_bytes_ - held;
}

// Of what may be opened: published, or retired and open.
uint64_t OwnRegistrations::held_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [base, number] : by_base_)
    if (!must_[number]) bytes += known_[number].bytes;
  for (const uint16_t number : retired_)
    if (std::atomic_ref<uint64_t>(table_.entries[number].openers).load(std::memory_order_seq_cst) != 0)
      bytes += known_[number].bytes;
  return bytes;
}

// By what the driver has there now.
bool OwnRegistrations::is_there_still(const Allocation& published) {
  const std::optional<Allocation> now = allocations_.find(published.base, published.bytes);
  if (now && now->identity == published.identity && now->kind == published.kind) return true;
  if (now && published_as(*now) == 0) allocations_.loosen(*now);  // nobody has asked for that one
  return false;
}

template <class IsGone>
void OwnRegistrations::retire_if(IsGone&& is_gone) {
  std::erase_if(by_base_, [&](const auto& entry) {
    const uint16_t number = entry.second;
    if (!is_gone(known_[number])) return false;
    retire(number);
    return true;
  });
}

// What was registered where another allocation lies now was freed; but views may share what they lie in.
void OwnRegistrations::retire_overlapped(const Allocation& by) {
  retire_if([&](const Allocation& known) {
    return known.base < by.base + by.bytes && by.base < known.base + known.bytes && !is_there_still(known);
  });
}

void OwnRegistrations::retire_what_is_gone() {
  retire_if([this](const Allocation& known) { return !is_there_still(known); });
}

void OwnRegistrations::retire(uint16_t number) {
  // Sequentially consistent, as the look in take_number(): a reader that counts itself after that look sees
  // this.
  std::atomic_ref<uint64_t>(table_.entries[number].state).store(kRetired, std::memory_order_seq_cst);
  allocations_.loosen(known_[number]);
  retired_.push_back(number);
}

uint16_t OwnRegistrations::take_number(Need need) {
  // Numbers that were never used first: who frees and allocates all the time disturbs readers least.
  const uint64_t used =
      std::max<uint64_t>(std::atomic_ref<uint64_t>(table_.used).load(std::memory_order_relaxed), 1);
  if (used < kMaxRegistrations - (need == Need::kMust ? 0 : kKeptForMust)) {
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

// False: the driver has no handle of it.
bool OwnRegistrations::publish(uint16_t number, const Allocation& allocation) {
  Registration& entry = table_.entries[number];
  try {
    allocations_.export_to(allocation, entry.handle);
  } catch (const Error&) {
    known_[number].bytes = 0;
    retired_.push_back(number);
    return false;
  }
  entry.base = allocation.base;
  entry.bytes = allocation.bytes;
  entry.identity = allocation.identity;
  entry.kind = allocation.kind;
  // Release, as all of that order: the fields; pairs with the looks in PeerRegistrations::open().
  std::atomic_ref<uint64_t>(entry.state).store(kPublished, std::memory_order_seq_cst);
  // Release: pairs with the acquire in PeerRegistrations::has_news().
  std::atomic_ref<uint64_t>(table_.published).fetch_add(1, std::memory_order_release);
  known_[number] = allocation;
  by_base_.emplace(allocation.base, number);
  return true;
}

}  // namespace starling
