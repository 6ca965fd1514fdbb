// Streams that stand with watches (StreamPolicy::watches): each may keep a multiprocessor once it is woken,
// so there is a limit, and they are woken one after the other. Host code, under the host's lock.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>

#include "device/handover.h"
#include "device/stream_call.h"

namespace starling::device {

inline constexpr uint32_t kMostWatched = 64;  // bits of StreamEntry::watches

class WatchedStreams {
 public:
  explicit WatchedStreams(uint32_t limit) : limit_(std::min(limit, kMostWatched)) {}

  bool has_place(Stream stream) const { return place_of(stream) < limit_; }
  // A watch is put into the stream for the operation, after has_place(). A second one ends as soon as it
  // comes.
  // Returns the stream's place.
  uint32_t add(StreamEntry& entry, Stream stream) {
    const uint32_t at = place_of(stream);
    if (entry.watches >> at & 1) return at;
    entry.watches |= uint64_t(1) << at;
    places_[at].stream = stream;
    ++places_[at].operations;
    ++operations_;
    used_ = std::max(used_, at + 1);
    return at;
  }
  void completed(const StreamEntry& entry) {
    for (uint64_t left = entry.watches; left != 0; left &= left - 1) {
      --places_[std::countr_zero(left)].operations;
      --operations_;
    }
  }
  bool any() const { return operations_ != 0; }

 private:
  struct Place {
    Stream stream;
    uint32_t operations;  // under way, for which it stands, or is about to
  };

  // The stream's place, else the first free one, which may be the limit.
  uint32_t place_of(Stream stream) const {
    uint32_t free = used_;
    for (uint32_t k = used_; k-- > 0;) {
      if (places_[k].operations == 0)
        free = k;
      else if (places_[k].stream == stream)
        return k;
    }
    return free;
  }

  uint32_t limit_;
  uint32_t used_ = 0;  // places so far
  uint32_t operations_ = 0;  // of all
  Place places_[kMostWatched] = {};
};

// An operation that has watches.
struct Watched {
  StreamEntry* entry = nullptr;
  const Handover* handover = nullptr;
  uint64_t sequence = 0;
};

// All of them, at one look.
struct WatchLook {
  bool served = false;  // a watch has come, and stays
  Watched woken;        // if any
  Watched next;         // of the others the first of those that had the fewest turns

  // True: it is the next, as far as is known. `before`: it comes before that one.
  template <class M>
  bool add(M& m, const Watched& one, bool before) {
    served |= watch_serves(m, *one.handover, one.sequence);
    if (one.entry->woken) woken = one;
    if (one.entry->woken || !(next.entry == nullptr || one.entry->turns < next.entry->turns ||
                              (before && one.entry->turns == next.entry->turns)))
      return false;
    next = one;
    return true;
  }
};

// Where no daemon comes one watch serves: others would only take places, which start kernels and the program
// need. Who stands already is not known, so operations have turns. Who does says that it has come to its
// watch soon after it was woken; who does not by the end of its turn is told to sleep again, and if it has
// just gone on all the same, says so before the next one's turn.
class WatchTurns {
 public:
  // `needed`: no daemon comes. True: the next one was woken.
  template <class M>
  bool take(M& m, const WatchLook& look, bool needed, uint64_t now, uint64_t turn_ns) {
    const bool over = now - turned_at_ >= turn_ns;
    const Watched& woken = look.woken;
    if (woken.entry != nullptr) {
      const bool serves = watch_serves(m, *woken.handover, woken.sequence);
      if (!serves && (over || look.served || !needed))
        let_sleep(m, woken, now);
      else if (!look.served)
        // Again: one whose place another operation has yet was not woken for good.
        wake_watches(m, *woken.handover, woken.sequence);
      return false;
    }
    if (!needed || !over || look.served || look.next.entry == nullptr) return false;
    turned_at_ = now;
    look.next.entry->woken = 1;
    ++look.next.entry->turns;
    wake_watches(m, *look.next.handover, look.next.sequence);
    return true;
  }

 private:
  template <class M>
  void let_sleep(M& m, const Watched& woken, uint64_t now) {
    turned_at_ = now;
    woken.entry->woken = 0;
    let_watches_sleep(m, *woken.handover, woken.sequence);
  }

  uint64_t turned_at_ = 0;
};

}  // namespace starling::device
