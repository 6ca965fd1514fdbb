// Streams that stand with watches (StreamPolicy::watches): each may keep a multiprocessor once it is woken,
// so there is a limit. Host code, under the host's lock.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>

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
    watched_[at].stream = stream;
    ++watched_[at].operations;
    ++operations_;
    used_ = std::max(used_, at + 1);
    return at;
  }
  void completed(const StreamEntry& entry) {
    for (uint64_t left = entry.watches; left != 0; left &= left - 1) {
      --watched_[std::countr_zero(left)].operations;
      --operations_;
    }
  }
  bool any() const { return operations_ != 0; }

 private:
  struct Watched {
    Stream stream;
    uint32_t operations;  // under way, for which it stands, or is about to
  };

  // The stream's place, else the first free one, which may be the limit.
  uint32_t place_of(Stream stream) const {
    uint32_t free = used_;
    for (uint32_t k = used_; k-- > 0;) {
      if (watched_[k].operations == 0)
        free = k;
      else if (watched_[k].stream == stream)
        return k;
    }
    return free;
  }

  uint32_t limit_;
  uint32_t used_ = 0;  // places so far
  uint32_t operations_ = 0;  // of all
  Watched watched_[kMostWatched] = {};
};

}  // namespace starling::device
