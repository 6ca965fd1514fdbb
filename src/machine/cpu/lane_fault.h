// Breaking a lane in one rank's region: by hosts, and by proxies for hosts elsewhere. The first fault stays.
#pragma once
#include <atomic>
#include <cstring>

#include "wire/arena.h"

namespace starling::cpu {

inline void publish_fault(LaneShared& shared, ArenaHeader* owner, FaultNote& note, uint64_t fault,
                          uint64_t sequence, const char* text) {
  note.sequence = sequence;
  // The region was zeroed: the text ends with a 0.
  std::memcpy(note.text, text, strnlen(text, sizeof(note.text) - 1));
  uint64_t none = 0;
  // Release: the note before the fault; pairs with the acquires of `fault` in hosts, daemons and proxies.
  if (!std::atomic_ref<uint64_t>(shared.fault)
           .compare_exchange_strong(none, fault, std::memory_order_release))
    return;
  // Release: the fault before the count, by which the owner's poller knows that it has to look for it.
  std::atomic_ref<uint64_t>(owner->faults).fetch_add(1, std::memory_order_release);
}

// By anyone but the owner's host: `shared` lies in the segment of `owner`. `origin`: rank in the lane of who
// breaks it. Another one may be at it, and its fault may be there a little later; or it has died amid it: so
// the owner is told to look at its peers' regions.
inline void write_fault(LaneShared* shared, ArenaHeader* owner, uint32_t origin, uint64_t kind,
                        uint64_t sequence, const char* text) {
  uint64_t nobody = 0;
  if (!std::atomic_ref<uint64_t>(shared->claim).compare_exchange_strong(nobody, origin + 1)) {
    // Relaxed: nothing was written.
    std::atomic_ref<uint64_t>(owner->faults).fetch_add(1, std::memory_order_relaxed);
    return;
  }
  publish_fault(*shared, owner, shared->other_note, kind, sequence, text);
}

// By the owner's host, under its lock. There is a fault when this returns.
inline void write_own_fault(LaneShared* shared, ArenaHeader* owner, uint64_t kind, uint64_t sequence,
                            const char* text) {
  // Relaxed: nothing is read by it. Whoever sees none is the first to write the note.
  if (std::atomic_ref<uint64_t>(shared->fault).load(std::memory_order_relaxed) != 0) return;
  publish_fault(*shared, owner, shared->own_note, kind | kOwnersNote, sequence, text);
}

// Of a fault that was acquired.
inline const FaultNote& note_of(const LaneShared& shared, uint64_t fault) {
  return fault & kOwnersNote ? shared.own_note : shared.other_note;
}

}  // namespace starling::cpu
