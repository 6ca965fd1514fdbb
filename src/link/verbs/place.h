// Whether a peer's memory may be written by one incarnation of a path.
#pragma once
#include "link/channel.h"
#include "wire/queue_pairs.h"

namespace starling::link::verbs {

// theirs: what the peer said when the incarnation was opened. An offer that it had taken back by then is
// void; of one that it takes back later nothing lands, since it fences the incarnation first.
inline bool is_good(const RemotePlace& place, const QueuePairs& theirs) {
  if (place.address == 0 || theirs.device >= kMaxRdmaDevices || place.keys.of[theirs.device] == 0)
    return false;
  return place.offer == 0 || place.offer >= theirs.offers_void;
}

}  // namespace starling::link::verbs
