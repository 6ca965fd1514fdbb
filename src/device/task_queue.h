// A block's task queue: the lanes that have operations to run, in the order in which they get the block.
// Only the leader touches it. It lives in the block's memory, so it outlives a quit.
#pragma once
#include "device/machine.h"
#include "wire/daemon.h"

namespace starling::device {

STARLING_HOST_DEVICE inline bool runs_before(const Task& a, const Task& b) {
  if (a.priority != b.priority) return a.priority > b.priority;
  return int64_t(a.arrival - b.arrival) < 0;
}

// Inserts behind its equals: FIFO order among equal priorities. `sorted` 0: at the end.
STARLING_HOST_DEVICE inline void insert_task(BlockMemory& block, Task task, bool sorted) {
  uint32_t at = block.task_count++;
  for (; sorted && at > 0 && runs_before(task, block.tasks[at - 1]); --at)
    block.tasks[at] = block.tasks[at - 1];
  block.tasks[at] = task;
  if (block.task_count > block.counters.queue_peak) block.counters.queue_peak = block.task_count;
}

STARLING_HOST_DEVICE inline void remove_task(BlockMemory& block, uint32_t at) {
  --block.task_count;
  for (; at < block.task_count; ++at) block.tasks[at] = block.tasks[at + 1];
  block.tasks[block.task_count] = Task{};  // nothing dead is left: an exploration compares memory
}

}  // namespace starling::device
