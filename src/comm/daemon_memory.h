// Owns what wire/daemon.h describes, in the memory of the place where the rank's daemon runs.
#pragma once
#include <starling/starling.h>

#include <string>
#include <vector>

#include "device/completion_queue.h"
#include "machine/place.h"
#include "wire/daemon.h"

namespace starling {

// Places of a ParkedRing for captured operations, beside those of eager ones.
inline constexpr uint32_t kCapturedPlaces = 3 * device::kStartLimit;

class DaemonOwner {
 public:
  // completion_queue: "ring", "packed_ring", "slots", or null for the default.
  DaemonOwner(uint32_t block_count, const Scheduling& scheduling, const char* completion_queue, Place& place);

  uint32_t block_count() const { return image_.block_count; }
  // What the daemon is started with.
  DaemonStart start() const;

  // Host's ends of the two queues.
  SubmissionRing& submissions() { return submissions_; }
  device::CompletionMemory& completions() { return completions_; }
  device::CompletionQueueKind completion_kind() const { return completion_kind_; }

  const Scheduling& scheduling() const { return image_.scheduling; }
  void set_scheduling(const Scheduling& scheduling);

  // Deals the pool's slots out to the blocks. Before the first launch.
  void share_pool(uint64_t slots);
  // The block that lends this slot.
  uint32_t owner_of(uint32_t grant) const { return (grant - kPoolSlot) % block_count(); }
  void set_lane(uint32_t id, Lane* lane);

  // A copy of what the blocks have now; counters may be those of different moments.
  std::vector<BlockMemory> blocks() const;
  // Of the first block, in the rank's segment; null where blocks have them in memory of their own.
  const BlockCounters* counters() const {
    return place_.traits().direct ? &image_.blocks->counters : nullptr;
  }
  // Where the host can read it while the block writes; else null.
  const TraceRing* trace_ring(uint32_t block) const {
    return place_.traits().direct ? &image_.blocks[block].trace : nullptr;
  }

 private:
  template <class T>
  T* make(uint64_t count) {
    return reinterpret_cast<T*>(place_.allocate(count * sizeof(T)));
  }
  void write_blocks(const std::vector<BlockMemory>& blocks);

  Place& place_;
  device::CompletionQueueKind completion_kind_;
  SubmissionRing
      submissions_{};  // as the host sees it; where the place is not direct the blocks have one of their own
  DaemonMemory image_{};  // as written to daemon_
  DaemonMemory* daemon_;
  device::CompletionMemory completions_{};
  device::CompletionMemory* device_completions_;
};

// The caller's wishes over the defaults. Ticks of the CPU and cuda machines are nanoseconds.
Scheduling scheduling_from(const starling_scheduling& wishes);
starling_scheduling scheduling_to(const Scheduling& scheduling);

}  // namespace starling
