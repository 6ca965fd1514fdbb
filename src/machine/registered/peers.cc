#include "machine/registered/peers.h"

#include <algorithm>
#include <atomic>

#include "base/error.h"

namespace starling {
namespace {

std::atomic_ref<uint64_t> word(uint64_t& of) { return std::atomic_ref<uint64_t>(of); }

}  // namespace

PeerRegistrations::~PeerRegistrations() {
  for (uint32_t number = 1; number < kMaxRegistrations; ++number) {
    if (opened_[number] == 0) continue;
    handles_.close(opened_[number]);
    // Release, as all of that order: it is closed; pairs with the look in OwnRegistrations::take_number().
    word(theirs_.entries[number].openers).fetch_sub(1, std::memory_order_seq_cst);
  }
}

bool PeerRegistrations::has_news() const {
  // Acquire: pairs with the release in OwnRegistrations::publish().
  return word(theirs_.published).load(std::memory_order_acquire) !=
         word(const_cast<uint64_t&>(looked_at_)).load(std::memory_order_relaxed);
}

void PeerRegistrations::open_all() {
  // Before the look: what is published meanwhile is news again. Acquire: as in has_news(); `used` is there.
  const uint64_t published = word(theirs_.published).load(std::memory_order_acquire);
  const uint64_t used =
      std::min<uint64_t>(word(theirs_.used).load(std::memory_order_relaxed), kMaxRegistrations);
  for (uint32_t number = 1; number < used; ++number)
    if (opened_[number] == 0) open(number);
  word(looked_at_).store(published, std::memory_order_relaxed);
}

// Counted first, then looked at: the owner does not use the number for another allocation once it has seen us
// there, and we see that it has retired the number if it had not. Who only looks counts for a moment, too.
void PeerRegistrations::open(uint32_t number) {
  Registration& entry = theirs_.entries[number];
  word(entry.openers).fetch_add(1, std::memory_order_seq_cst);
  // Acquire, as all of that order: pairs with the store in OwnRegistrations::publish().
  if (word(entry.state).load(std::memory_order_seq_cst) != kPublished) {
    word(entry.openers).fetch_sub(1, std::memory_order_seq_cst);
    return;
  }
  try {
    opened_[number] = handles_.open(entry);
  } catch (const Error& error) {
    word(entry.openers).fetch_sub(1, std::memory_order_seq_cst);
    const std::lock_guard lock(mutex_);
    std::erase_if(failures_, [&](const auto& failure) { return failure.first == number; });
    failures_.emplace_back(number, error.what());
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(failures_, [&](const auto& failure) { return failure.first == number; });
  }
  told_[number].offset = opened_[number] - entry.base;
  // Release: the offset, and that it is mapped; pairs with the acquire in device/opened.h.
  word(told_[number].made).store(1, std::memory_order_release);
}

std::string PeerRegistrations::refusal() const {
  const std::lock_guard lock(mutex_);
  for (const auto& [number, why] : failures_)
    // Relaxed: nothing else is read because of it.
    if (word(told_[number].wanted).load(std::memory_order_relaxed) != 0) return why;
  return "";
}

}  // namespace starling
