// The single-queue model on sparse events.
#pragma once

#include <cstdint>
#include <vector>

#include "study/events.h"
#include "study/model.h"

namespace starling::study {

class SingleQueue {
 public:
  // Whether head-of-line blocking ends in a cycle. `events` are those of the component's GPUs, in its order.
  //
  // All lists follow one order of all collectives, the keys. A cycle needs, for every key between its lowest
  // and its highest, a GPU that goes from a higher to a lower one, that is, a span that covers it. So only
  // collectives with keys covered by overlapping spans can be in it, and each such stretch of keys is judged
  // alone.
  bool deadlocks(const Component& component, const GpuEvents* events);

  // The released check (see program.cc), the whole round turn by turn: it depends on time, not on order
  // alone.
  bool released_deadlocks(const Component& component, const GpuEvents* events);

 private:
  struct Stretch {
    std::int64_t low;
    std::int64_t high;
  };
  struct Queue {
    int gpu;
    int next;
    int end;
  };
  struct Pending {
    int collective;
    int gpus;
  };
  bool stretch_deadlocks(const Component& component, const GpuEvents* events, const Stretch& stretch);

  std::vector<Stretch> stretches_;
  std::vector<Queue> queues_;
  std::vector<int> queue_of_gpu_;
  std::vector<int> arrived_;  // by collective: GPUs that have it at the head; all 0 between calls
  std::vector<int> heads_;
  std::vector<Pending> pending_;     // by group
  std::vector<std::int64_t> epoch_;  // by group: changes when the group completes a collective
  std::vector<std::vector<std::int64_t>> pending_epoch_;  // by GPU and slot: the epoch in which it launched
  std::vector<std::vector<int>> launch_order_;  // by GPU: places
};

}  // namespace starling::study
