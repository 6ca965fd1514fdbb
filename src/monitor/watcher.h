// Watches all ranks of this host (those of this user): finds them as they come, follows their paths on a
// thread of its own, and remembers for a while those that have gone.
#pragma once
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "monitor/watch.h"

namespace starling::monitor {

struct WatcherOptions {
  WatchOptions watch;
  uint64_t follow_ns = 2'000'000;    // between two looks at the rings; what a ring holds is its bound
  uint64_t search_ns = 200'000'000;  // between two looks for ranks
  uint64_t remember_ns = 30'000'000'000;  // those that have gone
};

class Watcher {
 public:
  explicit Watcher(const WatcherOptions& options = {});
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  // Any thread. Of each rank what there is now; ranks of a job stand together, in order.
  std::vector<RankView> look();

  struct Samples {
    std::string segment;
    std::vector<PathSample> samples;
    std::vector<PathAnomaly> anomalies;
  };
  // What has come since the last call.
  std::vector<Samples> take();

 private:
  struct Watched {
    std::unique_ptr<Watch> watch;
    uint64_t gone_since_ns = 0;
  };
  void run();
  void search(uint64_t now_ns);

  const WatcherOptions options_;
  std::mutex mutex_;  // guards all below
  std::condition_variable ending_changed_;
  bool ending_ = false;
  std::map<std::string, Watched> watched_;
  // No rank's, or one that is just being made: tried again, less and less often.
  struct Refused {
    uint64_t next_ns;
    uint64_t wait_ns;
  };
  std::map<std::string, Refused> refused_;
  std::thread thread_;
};

}  // namespace starling::monitor
