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
    if (entry.watches == 0) entry.stands = ++stands_;
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
  uint64_t stands_ = 0;  // operations that had watches so far
  Place places_[kMostWatched] = {};
};

// An operation that has watches.
struct Watched {
  StreamEntry* entry = nullptr;
  const Handover* handover = nullptr;
  uint64_t sequence = 0;
  const void* owner = nullptr;  // whatever who looks wants to know of it
};

// All of them that are under way, at one look.
class WatchLook {
 public:
  template <class M>
  void add(M& m, const Watched& one) {
    StreamEntry& entry = *one.entry;
    if (is_done(m, *one.handover, one.sequence)) {  // or its lane is broken: its streams have been released
      entry.woken = 0;
      return;
    }
    if (entry.woken) woken_ = one;
    // Both stay: streams that come late overwrite them.
    entry.put |= watch_is_put(m, *one.handover, one.sequence);
    entry.came |= has_come_to_watch(m, *one.handover, one.sequence);
    served_ |= entry.came && entry.put;
    if (entry.woken || entry.came || !entry.put) return;
    if (next_.entry == nullptr || entry.turns < next_.entry->turns ||
        (entry.turns == next_.entry->turns && entry.stands < next_.entry->stands))
      next_ = one;
  }

  // A stream has come to a watch, and stands yet.
  bool served() const { return served_; }
  const Watched& woken() const { return woken_; }  // if any
  const Watched& next() const { return next_; }  // of the others that had the fewest turns the oldest, if any

 private:
  bool served_ = false;
  Watched woken_, next_;
};

// Where no daemon comes one watch serves: others would only take places, which start kernels and the program
// need. Which streams stand is not known, so operations have turns. A stream that stands says that it has
// come to its watch soon after it was woken; one that has not by the end of its turn is told to sleep again,
// and if it has just gone on all the same, says so before the next one's turn. Where many streams stand in
// few hardware queues, one may stand before what a watch that serves waits for. So if nothing completes for
// long, another one has a turn, all the same; then after twice as long.
class WatchTurns {
 public:
  struct Times {
    uint64_t now;
    uint64_t turn_ns;  // StreamFacts
    uint64_t served_ns;  // likewise
    uint64_t completed;  // when an operation was, the last time
  };

  // `needed`: no daemon comes. Whose watches were woken now; null: nobody's.
  template <class M>
  const Watched* take(M& m, const WatchLook& look, bool needed, const Times& times) {
    const bool over = times.now - turned_at_ >= times.turn_ns;
    if (const Watched& woken = look.woken(); woken.entry != nullptr) {
      // Who has come needs no waking, and another stream that comes to stand for the same is not to come.
      if (woken.entry->came || over || !needed)
        let_sleep(m, woken, times.now);
      else  // again: one whose place another operation has yet was not woken for good
        wake_watches(m, *woken.handover, woken.sequence);
      return nullptr;
    }
    const Watched& next = look.next();
    if (!needed || !over || next.entry == nullptr || (look.served() && !is_vain(times))) return nullptr;
    turned_at_ = times.now;
    next.entry->woken = 1;
    ++next.entry->turns;
    wake_watches(m, *next.handover, next.sequence);
    return &next;
  }

 private:
  bool is_vain(const Times& times) {
    if (times.completed >= turned_at_ || patience_ == 0) patience_ = times.served_ns;
    if (times.now - std::max(turned_at_, times.completed) < patience_) return false;
    patience_ *= 2;
    return true;
  }

  template <class M>
  void let_sleep(M& m, const Watched& woken, uint64_t now) {
    if (!woken.entry->came) turned_at_ = now;
    woken.entry->woken = 0;
    let_watches_sleep(m, *woken.handover, woken.sequence);
  }

  uint64_t turned_at_ = 0;
  uint64_t patience_ = 0;
};

}  // namespace starling::device
