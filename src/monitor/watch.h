// What a watcher knows of one rank of this host: read from its segment, without its help and without its
// notice. Not for several threads. Times are the host's monotonic clock.
#pragma once
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "machine/cpu/arena_view.h"
#include "monitor/path_follower.h"
#include "wire/arena.h"
#include "wire/trace.h"

namespace starling::monitor {

// The oldest operation of a lane that has not ended, as the rank said it on its board.
struct OperationView {
  bool known = false;
  Collective collective{};
  DataType data_type{};
  ReduceOp reduce_op{};
  int32_t root = 0;
  uint64_t count = 0;
  uint64_t deadline_ns = 0;
};

struct LaneView {
  std::string name;
  uint64_t key_offset = 0;  // of its region: the same as long as the lane lives
  uint32_t rank = 0;
  uint32_t size = 0;
  uint64_t submitted = 0;
  uint64_t completed = 0;
  FaultKind fault = FaultKind::kNone;
  OperationView oldest;
};

// Losses: of all anomalies since the watch began, the current one too.
struct PathView : PathLosses {
  uint64_t ring_offset = 0;  // names it
  uint32_t peer = 0;
  uint32_t path = 0;
  LinkKind link{};
  std::string name;
  uint64_t transfers = 0;
  uint64_t bytes = 0;
  uint64_t left_bytes = 0;
  uint64_t waiting_ns = 0;  // how long the oldest under way has been; 0: none is
  uint64_t straight_bytes = 0;  // over queue pairs, as PathRing's
  uint64_t copied_bytes = 0;
  uint64_t closed = 0;
  uint64_t missed = 0;  // records that were gone before they were read
  WindowSample window{};  // transfers 0: none yet
  std::optional<Anomaly> current;
};

enum class RankState : uint32_t { kAlive, kLeft, kDied };

struct RankView {
  std::string segment;
  RankState state{};
  uint32_t pid = 0;
  std::string device;
  bool joined = false;
  std::string job;
  uint64_t job_high = 0;
  uint64_t job_low = 0;
  uint32_t rank = 0;
  uint32_t size = 0;
  std::string waiting;  // what it says it waits for, for half a heartbeat of its poller or longer
  bool counted = false;  // `counters` mean something: blocks of a GPU keep theirs
  BlockCounters counters{};  // of all blocks; queue_peak: the largest
  uint64_t window = 0;
  std::vector<LaneView> lanes;
  std::vector<PathView> paths;
};

struct PathSample {
  uint64_t ring_offset;
  TransferRecord record;
  WindowSample window;
};

struct PathAnomaly {
  uint64_t ring_offset;
  Anomaly anomaly;
};

struct WatchOptions {
  uint32_t window = 0;  // 0: the rank's (STARLING_WINDOW)
  uint64_t kept_samples = 0;  // that wait to be taken; the oldest go first
  AnomalyOptions anomaly = {};  // but for its window
};

class Watch {
 public:
  // Throws Error(peer_failed) where there is nothing to watch under this name.
  Watch(const std::string& segment, const WatchOptions& options);

  // Reads what the paths did since the last call. At 100,000 transfers a second a ring holds 10 ms.
  void follow();
  RankView look(uint64_t now_ns) const;
  bool alive() const { return view_.alive(); }
  bool has_paths() const { return !paths_.empty(); }

  // What has come since the last call.
  std::deque<PathSample> take_samples();
  std::deque<PathAnomaly> take_anomalies();

 private:
  struct Path {
    uint64_t offset;
    PathFollower follower;
  };

  void find_paths();
  void follow(Path& path);
  PathView look(const Path& path, uint64_t now_ns) const;
  std::optional<LaneView> lane_at(uint64_t offset) const;
  OperationView operation_at(uint64_t lane_offset, uint32_t board_size, uint64_t sequence) const;

  cpu::ArenaView view_;
  const WatchOptions options_;
  const MonitorShared* shared_;
  std::deque<Path> paths_;
  uint64_t newest_path_ = 0;
  std::deque<PathSample> samples_;
  std::deque<PathAnomaly> anomalies_;
};

}  // namespace starling::monitor
