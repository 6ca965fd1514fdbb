// Owns what wire/daemon.h describes, for a rank on the CPU machine.
#pragma once
#include <starling/starling.h>

#include <memory>
#include <vector>

#include "device/completion_queue.h"
#include "wire/daemon.h"

namespace starling {

class DaemonOwner {
 public:
  explicit DaemonOwner(uint32_t block_count);

  uint32_t block_count() const { return daemon_->block_count; }
  DaemonMemory* daemon() { return daemon_.get(); }
  device::CompletionMemory* completions() { return &completions_; }

  // Deals the pool's slots out to the blocks.
  void share_pool(uint64_t slots);
  // The block that lends this slot.
  uint32_t owner_of(uint32_t grant) const { return (grant - kPoolSlot) % uint32_t(pools_.size()); }
  void set_lane(uint32_t id, Lane* lane);

 private:
  // Sparse: pages exist once touched, and one is touched per 256 tasks or 512 completions.
  template <class T>
  struct Free {
    void operator()(T* p) const { ::free(p); }
  };
  template <class T>
  using Sparse = std::unique_ptr<T[], Free<T>>;

  std::unique_ptr<DaemonMemory> daemon_;
  device::CompletionMemory completions_{};
  std::vector<BlockMemory> blocks_;
  std::vector<Sparse<Task>> tasks_;
  std::vector<Sparse<uint64_t>> unpublished_;
  std::vector<Sparse<TraceRecord>> records_;
  std::vector<std::vector<uint32_t>> pools_;
  std::vector<Submission> submissions_;
  std::vector<uint64_t> completion_entries_;
  std::vector<std::unique_ptr<Lane*[]>> segments_;
};

// The caller's wishes over the defaults. Ticks of the CPU machine are nanoseconds.
Scheduling scheduling_from(const starling_scheduling& wishes);
starling_scheduling scheduling_to(const Scheduling& scheduling);
device::CompletionQueueKind completion_queue_named(const char* name);

}  // namespace starling
