// Streams that stand with watches (StreamPolicy::watches): each may keep a multiprocessor once it is woken,
// so there is a limit. Host code, under the host's lock.
#pragma once
#include <algorithm>
#include <cstdint>

#include "device/stream_call.h"

namespace starling::device {

inline constexpr uint32_t kMostWatched = 8;  // bits of StreamEntry::watches

class WatchedStreams {
 public:
  explicit WatchedStreams(uint32_t limit) : limit_(std::min(limit, kMostWatched)) {}

  bool has_place(Stream stream) const { return place_of(stream) < kMostWatched; }
  // A watch is put into the stream for the operation, after has_place(). A second one ends as soon as it
  // comes.
  void add(StreamEntry& entry, Stream stream) {
    const uint32_t at = place_of(stream);
    if (entry.watches >> at & 1) return;
    entry.watches |= uint8_t(1u << at);
    watched_[at].stream = stream;
    ++watched_[at].operations;
  }
  void completed(const StreamEntry& entry) {
    for (uint32_t k = 0; k < kMostWatched; ++k) watched_[k].operations -= entry.watches >> k & 1;
  }
  bool any() const {
    return std::any_of(watched_, watched_ + limit_, [](const Watched& one) { return one.operations != 0; });
  }

 private:
  struct Watched {
    Stream stream;
    uint32_t operations;  // under way, for which it stands, or is about to
  };

  // The stream's place, else a free one, else kMostWatched.
  uint32_t place_of(Stream stream) const {
    uint32_t free = kMostWatched;
    for (uint32_t k = limit_; k-- > 0;) {
      if (watched_[k].operations == 0)
        free = k;
      else if (watched_[k].stream == stream)
        return k;
    }
    return free;
  }

  uint32_t limit_;
  Watched watched_[kMostWatched] = {};
};

}  // namespace starling::device
