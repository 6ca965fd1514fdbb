#include "study/single_queue.h"

#include <algorithm>

namespace starling::study {

bool SingleQueue::deadlocks(const Component& component, const GpuEvents* events) {
  stretches_.clear();
  for (int gpu = 0; gpu < component.gpus(); ++gpu) {
    for (const Span& span : events[gpu].spans) {
      const std::vector<std::int64_t>& keys = component.lists[gpu].key_at;
      stretches_.push_back({keys[span.begin], keys[span.end - 1]});
    }
  }
  std::sort(stretches_.begin(), stretches_.end(),
            [](const Stretch& a, const Stretch& b) { return a.low < b.low; });
  for (std::size_t i = 0; i < stretches_.size();) {
    Stretch joined = stretches_[i++];
    for (; i < stretches_.size() && stretches_[i].low <= joined.high; ++i) {
      joined.high = std::max(joined.high, stretches_[i].high);
    }
    if (stretch_deadlocks(component, events, joined)) return true;
  }
  return false;
}

bool SingleQueue::stretch_deadlocks(const Component& component, const GpuEvents* events,
                                    const Stretch& stretch) {
  queues_.clear();
  queue_of_gpu_.assign(component.gpus(), -1);
  arrived_.resize(component.collectives, 0);
  int left = 0;
  for (int gpu = 0; gpu < component.gpus(); ++gpu) {
    const std::vector<std::int64_t>& keys = component.lists[gpu].key_at;
    const int begin =
        static_cast<int>(std::lower_bound(keys.begin(), keys.end(), stretch.low) - keys.begin());
    const int end =
        static_cast<int>(std::upper_bound(keys.begin() + begin, keys.end(), stretch.high) - keys.begin());
    if (begin == end) continue;
    queue_of_gpu_[gpu] = static_cast<int>(queues_.size());
    queues_.push_back({gpu, begin, end});
    left += end - begin;
  }
  heads_.clear();
  for (std::size_t q = 0; q < queues_.size(); ++q) heads_.push_back(static_cast<int>(q));
  while (!heads_.empty()) {  // queues whose head was not looked at yet
    const Queue& queue = queues_[heads_.back()];
    heads_.pop_back();
    const GpuList& list = component.lists[queue.gpu];
    const int place = events[queue.gpu].place_of_launch(queue.next);
    const int group = list.slots[list.slot_at[place]].group;
    const int collective = component.first_collective[group] + list.index_at[place];
    const std::vector<Member>& members = component.members[group];
    if (++arrived_[collective] < static_cast<int>(members.size())) continue;
    arrived_[collective] = 0;
    left -= static_cast<int>(members.size());
    for (const Member& member : members) {
      const int q = queue_of_gpu_[member.gpu];
      if (++queues_[q].next < queues_[q].end) heads_.push_back(q);
    }
  }
  if (left > 0) std::fill(arrived_.begin(), arrived_.end(), 0);
  return left > 0;
}

bool SingleQueue::released_deadlocks(const Component& component, const GpuEvents* events) {
  pending_.assign(component.groups.size(), {0, 0});
  epoch_.assign(component.groups.size(), 1);
  pending_epoch_.resize(component.gpus());
  launch_order_.resize(component.gpus());
  int longest = 0;
  for (int gpu = 0; gpu < component.gpus(); ++gpu) {
    const GpuList& list = component.lists[gpu];
    pending_epoch_[gpu].assign(list.slots.size(), 0);
    launch_order_[gpu].resize(list.length());
    for (int i = 0; i < list.length(); ++i) launch_order_[gpu][i] = i;
    for (const Span& span : events[gpu].spans) {
      std::copy_n(events[gpu].taken.begin() + span.first, span.end - span.begin,
                  launch_order_[gpu].begin() + span.begin);
    }
    longest = std::max(longest, list.length());
  }
  for (int turn = 0; turn < longest; ++turn) {
    for (int gpu = 0; gpu < component.gpus(); ++gpu) {
      const GpuList& list = component.lists[gpu];
      if (turn >= list.length()) continue;
      const int place = launch_order_[gpu][turn];
      const int slot = list.slot_at[place];
      const int group = list.slots[slot].group;
      if (pending_epoch_[gpu][slot] == epoch_[group]) continue;  // the previous one is pending: dropped
      Pending& pending = pending_[group];
      if (pending.gpus > 0 && pending.collective != list.index_at[place]) return true;
      pending.collective = list.index_at[place];
      pending_epoch_[gpu][slot] = epoch_[group];
      if (++pending.gpus == static_cast<int>(component.members[group].size())) {
        pending.gpus = 0;
        ++epoch_[group];
      }
    }
  }
  return false;
}

}  // namespace starling::study
