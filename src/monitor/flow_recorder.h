// What a flow tells the monitor (link/flow.h): which transfer was posted on which path, and which have
// landed. One thread's, the proxy's. A flow without rings records nothing, and should not look at the clock
// for it.
//
// A transfer is completed here when the sender hears that it landed: what a socket has taken may still be far
// from the peer. Over sockets the flow's reports say so; over queue pairs the completion of its work request
// does (ICCL §3.4), and reports are no news.
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
    for (PathRing* ring : rings) paths_.push_back(std::make_unique<Path>(*ring));
  }

  bool on() const { return !paths_.empty(); }

  // A path was opened, and this carries it.
  void opened(uint32_t path, LinkKind kind) {
    if (!on()) return;
    paths_[path]->kind = kind;
    paths_[path]->recorder.opened(kind);
  }

  // Not recorded where so many are under way that there is no room: completions may lag behind reports.
  void posted(uint32_t path, uint64_t sequence, uint64_t bytes, uint64_t now_ns) {
    if (on() && paths_[path]->recorder.under_way() < kMostUnderWay)
      paths_[path]->recorder.posted(now_ns, bytes, sequence);
  }

  // Payload bytes of what was posted, as PathRing has them.
  void went(uint32_t path, uint64_t straight_bytes, uint64_t copied_bytes) {
    if (on()) paths_[path]->recorder.went(straight_bytes, copied_bytes);
  }

  // A report: transfers before `done` have landed, and done + k where bit k of `landed` is set. Of any epoch:
  // what has landed stays so. Sockets keep order, so on each path it is the oldest ones. at_ns(sequence):
  // when.
  template <class At>
    requires std::is_invocable_v<At, uint64_t>
  void landed(uint64_t done, uint64_t landed, At&& at_ns) {
    for (const auto& path : paths_) {
      PathRecorder& recorder = path->recorder;
      while (path->kind == LinkKind::kTcp && recorder.under_way() > 0 &&
             is_there(recorder.oldest(), done, landed))
        recorder.completed(at_ns(recorder.oldest()));
    }
  }
  void landed(uint64_t done, uint64_t landed, uint64_t now_ns) {
    this->landed(done, landed, [now_ns](uint64_t) { return now_ns; });
  }

  // Whether the path is recorded and its own completions are: then somebody has to look at the clock for
  // them.
  bool completes(uint32_t path) const { return on() && paths_[path]->kind == LinkKind::kVerbs; }
  // The work request of a transfer has completed.
  void completed(uint32_t path, uint64_t sequence, uint64_t now_ns) {
    if (completes(path)) paths_[path]->recorder.completed(sequence, now_ns);
  }

  // What was under way on it will be posted again, or has landed unheard of.
  void closed(uint32_t path) {
    if (on()) paths_[path]->recorder.closed();
  }

 private:
  struct Path {
    explicit Path(PathRing& ring) : recorder(ring) {}
    PathRecorder recorder;
    LinkKind kind = LinkKind::kTcp;
  };

  static bool is_there(uint64_t sequence, uint64_t done, uint64_t landed) {
    return sequence < done || (sequence - done < 64 && (landed >> (sequence - done) & 1));
  }

  std::vector<std::unique_ptr<Path>> paths_;
};

}  // namespace starling::monitor
