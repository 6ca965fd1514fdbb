// Which states of the simulated network are the same.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/hash.h"
#include "link/sim/network.h"
#include "link/sim/timers.h"

namespace starling::link::sim {

static_assert(std::has_unique_object_representations_v<NetworkHead>);

// What can make no difference any more is left out, so that states that behave alike are one. Probes are
// numbered only to be told apart: their numbers count from the last one.
void Network::forget_the_irrelevant(NetworkHead& head) const {
  SenderState& s = head.sender;
  ReceiverState& r = head.receiver;
  for (uint64_t k = 0; k < kFlowWindow; ++k)
    if (s.acked + k >= s.transmitted) s.path_of[(s.acked + k) % kFlowWindow] = 0;
  if (s.skip == 0) s.skip_base = 0;
  if (s.phase != SenderPhase::kWaitResume) s.next_use = 0;
  if (s.phase == SenderPhase::kRun) s.survivors = 0;
  if (r.pending_attempt == 0) {
    r.pending_epoch = r.pending_use = r.pending_survivors = 0;
    std::fill_n(r.pending_incarnations, kMaxPaths, 0);
  }
  for (PathEnd* paths : {s.paths, r.paths})
    for (uint32_t p = 0; p < kMaxPaths; ++p) {
      PathEnd& path = paths[p];
      path.probe = 0;
      path.cause = FailureCause::kNone;
      path.failures = std::min(path.failures, paths == s.paths ? kTriesWhileDown : 0);
      if (!path.asked) path.probed_below = path.probed_epoch = 0;
    }
}

uint64_t Network::hash() const {
  uint64_t hash = 0;
  const auto add = [&](const void* data, size_t bytes) {
    const auto* at = static_cast<const std::byte*>(data);
    for (size_t k = 0; k < bytes; k += 8) {
      uint64_t word;
      std::memcpy(&word, at + k, 8);
      hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
      hash ^= hash >> 29;
    }
  };
  static_assert(sizeof(NetworkHead) % 8 == 0 && sizeof(Item) % 8 == 0 && offsetof(SimPath, forward) % 8 == 0);
  NetworkHead head = state_;
  forget_the_irrelevant(head);
  add(&head, sizeof head);
  for (uint32_t p = 0; p < setup_->paths; ++p) {
    const SimPath& path = state_.paths[p];
    add(&path, offsetof(SimPath, forward));
    for (const Queue* queue : {&path.forward, &path.reverse}) {
      hash = mix64(hash + queue->count + 1);
      for (uint32_t k = 0; k < queue->count; ++k) {
        Item item = queue->items[k];
        const bool probe = item.message.kind == uint32_t(LinkMessageKind::kProbe);
        const bool of_sender = (queue == &path.forward) == probe;
        const PathEnd& asking = of_sender ? state_.sender.paths[p] : state_.receiver.paths[p];
        if (item.message.probe != 0) item.message.probe -= asking.probe + 1;
        add(&item, sizeof item);
      }
    }
  }
  return mix64(hash);
}

}  // namespace starling::link::sim
