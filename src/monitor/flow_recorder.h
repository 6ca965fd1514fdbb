// What a flow tells the monitor (link/flow.h): which transfer was posted on which path, and which have
// landed. One thread's, the proxy's. A flow without rings records nothing, and should not look at the clock
// for it.
//
// A transfer is completed here when the sender hears that it landed, as a reliable queue pair says it: what a
// socket has taken may still be far from the peer.
#pragma once
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "monitor/path_ring.h"

namespace starling::monitor {

class FlowRecorder {
 public:
  FlowRecorder() = default;
  // One a path. Rings outlive it.
  explicit FlowRecorder(const std::vector<PathRing*>& rings) {
    for (PathRing* ring : rings) paths_.push_back(std::make_unique<PathRecorder>(*ring));
  }

  bool on() const { return !paths_.empty(); }

  void posted(uint32_t path, uint64_t sequence, uint64_t bytes, uint64_t now_ns) {
    if (on()) paths_[path]->posted(now_ns, bytes, sequence);
  }

  // A report: transfers before `done` have landed, and done + k where bit k of `landed` is set. Of any epoch:
  // what has landed stays so. Paths keep order, so on each it is the oldest ones. at_ns(sequence): when.
  template <class At>
    requires std::is_invocable_v<At, uint64_t>
  void landed(uint64_t done, uint64_t landed, At&& at_ns) {
    for (const auto& path : paths_)
      while (path->under_way() > 0 && is_there(path->oldest(), done, landed))
        path->completed(at_ns(path->oldest()));
  }
  void landed(uint64_t done, uint64_t landed, uint64_t now_ns) {
    this->landed(done, landed, [now_ns](uint64_t) { return now_ns; });
  }

  // A completion of the path itself, where its link has such.
  void completed(uint32_t path, uint64_t now_ns) {
    if (on() && paths_[path]->under_way() > 0) paths_[path]->completed(now_ns);
  }

  // What was under way on it will be posted again, or has landed unheard of.
  void closed(uint32_t path) {
    if (on()) paths_[path]->closed();
  }

 private:
  static bool is_there(uint64_t sequence, uint64_t done, uint64_t landed) {
    return sequence < done || (sequence - done < 64 && (landed >> (sequence - done) & 1));
  }

  std::vector<std::unique_ptr<PathRecorder>> paths_;
};

}  // namespace starling::monitor
