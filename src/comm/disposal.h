// Peers' memory that nobody uses any more. To unmap a GPU's may wait for kernels that run there, and whoever
// lets go of it last is the poller, under its lock: so a thread of its own does it.
#pragma once
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/called_thread.h"
#include "machine/place.h"

namespace starling {

class Disposal : public std::enable_shared_from_this<Disposal> {
 public:
  // What is left is unmapped by who ends it.
  ~Disposal() { thread_.stop(); }

  // Any thread may let go of it. The place outlives what is shared so, and this.
  std::shared_ptr<PeerMemory> share(std::unique_ptr<PeerMemory> memory) {
    return {memory.release(),
            [disposal = shared_from_this()](PeerMemory* unused) { disposal->take(unused); }};
  }

 private:
  void take(PeerMemory* unused) {
    {
      const std::lock_guard lock(mutex_);
      unused_.emplace_back(unused);
    }
    thread_.call(0);
  }
  void dispose() {
    std::vector<std::unique_ptr<PeerMemory>> unused;  // it ends after the lock
    const std::lock_guard lock(mutex_);
    unused.swap(unused_);
  }

  std::mutex mutex_;  // guards the next one
  std::vector<std::unique_ptr<PeerMemory>> unused_;
  CalledThread thread_{"st-disposal", {[this] { dispose(); }}};  // last: it uses all else
};

}  // namespace starling
