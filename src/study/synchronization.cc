#include "study/synchronization.h"

#include <algorithm>

#include "base/assert.h"

namespace starling::study {

Verdict Synchronization::run(const Component& component, const GpuEvents* events, Verdict wanted) {
  component_ = &component;
  events_ = events;
  if (static_cast<int>(gpus_.size()) < component.gpus()) gpus_.resize(component.gpus());
  next_event_.assign(component.gpus(), kNeverHappens);
  suspended_.clear();
  for (int gpu = 0; gpu < component.gpus(); ++gpu) {
    gpus_[gpu].launches = 0;
    gpus_[gpu].synchronizations = 0;
    gpus_[gpu].suspended = false;
    go_on(gpu, 0);
  }
  Verdict verdict;
  while (true) {
    const auto first = std::min_element(next_event_.begin(), next_event_.end());
    if (*first >= kNeverHappens) break;
    const int gpu = static_cast<int>(first - next_event_.begin());
    if (gpus_[gpu].suspended) {
      resume(gpu, *first);
    } else {
      reach(gpu, *first, verdict);
      if (verdict.released && !wanted.exact) break;
    }
  }
  verdict.exact = wanted.exact && !suspended_.empty();
  return verdict;
}

// From here on `gpu` launches one collective a turn, until its next synchronization.
void Synchronization::go_on(int gpu, std::int64_t turn) {
  Gpu& state = gpus_[gpu];
  const std::vector<int>& cuts = events_[gpu].synchronizations;
  state.turn = turn;
  if (state.synchronizations < cuts.size()) {
    state.limit = cuts[state.synchronizations];
    next_event_[gpu] = (turn + state.limit - state.launches) * component_->gpus() + gpu;
  } else {
    state.limit = component_->lists[gpu].length();
    next_event_[gpu] = kNeverHappens;
  }
}

void Synchronization::reach(int gpu, Time now, Verdict& verdict) {
  Gpu& state = gpus_[gpu];
  const std::int64_t turn = state.turn + state.limit - state.launches;
  state.launches = state.limit;
  ++state.synchronizations;
  collect_needs(gpu, now);
  if (state.needs.empty()) {
    go_on(gpu, turn + 1);
    for (int other : suspended_) next_event_[other] = end_of_suspension(other);
    return;
  }
  state.suspended = true;
  verdict.released |= intersects(gpu);
  suspended_.push_back(gpu);
  next_event_[gpu] = end_of_suspension(gpu);
}

// The launch at `completed` was the last that the synchronization of `gpu` waited for; `gpu` uses its next
// turn.
void Synchronization::resume(int gpu, Time completed) {
  gpus_[gpu].suspended = false;
  std::erase(suspended_, gpu);
  const std::int64_t turn = completed / component_->gpus();
  go_on(gpu, gpu > completed % component_->gpus() ? turn : turn + 1);
  for (int other : suspended_) next_event_[other] = end_of_suspension(other);
}

int Synchronization::launches_at(int gpu, Time now) const {
  const Gpu& state = gpus_[gpu];
  if (state.suspended) return state.launches;
  const std::int64_t turns_begun = (now - gpu + component_->gpus() - 1) / component_->gpus();
  const std::int64_t done = state.launches + std::max<std::int64_t>(0, turns_begun - state.turn);
  return static_cast<int>(std::min<std::int64_t>(done, state.limit));
}

void Synchronization::collect_needs(int gpu, Time now) {
  Gpu& state = gpus_[gpu];
  state.needs.clear();
  const GpuList& list = component_->lists[gpu];
  for (std::size_t slot = 0; slot < list.slots.size(); ++slot) {
    for (const Member& member : component_->members[list.slots[slot].group]) {
      if (member.gpu == gpu) continue;
      const int launches = required(gpu, static_cast<int>(slot), state.launches, member.gpu, member.slot);
      if (launches > launches_at(member.gpu, now)) state.needs.push_back({member.gpu, launches});
    }
  }
}

int Synchronization::newest(int gpu, int slot, int cut) const {
  const GpuList& list = component_->lists[gpu];
  const Span* span = events_[gpu].span_across(cut);
  if (span == nullptr) return list.slots[slot].before[cut] - 1;
  int newest = list.slots[slot].before[span->begin] - 1;
  for (int launch = span->begin; launch < cut; ++launch) {
    const int place = events_[gpu].taken[span->first + launch - span->begin];
    if (list.slot_at[place] == slot) newest = std::max(newest, list.index_at[place]);
  }
  return newest;
}

int Synchronization::required(int gpu, int slot, int cut, int other, int other_slot) const {
  const int last = newest(gpu, slot, cut);
  if (last < 0) return 0;
  const int place = component_->lists[other].slots[other_slot].where[last];
  const Span* span = events_[other].span_at(place);
  if (span == nullptr) return place + 1;  // all places before it are launched before it
  // Inside a span of `other`, earlier ones of the group may come later: the latest that `gpu` has launched
  // counts.
  const GpuList& list = component_->lists[other];
  const std::vector<int>& where = component_->lists[gpu].slots[slot].where;
  const bool divided = events_[gpu].span_across(cut) != nullptr;
  int launches = 0;
  for (int launch = span->begin; launch < span->end; ++launch) {
    const int taken = events_[other].taken[span->first + launch - span->begin];
    if (list.slot_at[taken] != other_slot || taken > place) continue;
    if (divided && events_[gpu].launch_of_place(where[list.index_at[taken]]) >= cut) continue;
    launches = launch + 1;
  }
  return launches;
}

// When the last of its needs is met, as far as the current lines tell; later, if one ends before.
Synchronization::Time Synchronization::end_of_suspension(int gpu) const {
  Time end = -1;
  for (const Need& need : gpus_[gpu].needs) {
    const Gpu& other = gpus_[need.gpu];
    if (need.launches <= other.launches) continue;
    if (other.suspended || need.launches > other.limit) return kNeverHappens;
    const std::int64_t turn = other.turn + need.launches - 1 - other.launches;
    end = std::max(end, turn * component_->gpus() + need.gpu);
  }
  STARLING_ASSERT(end >= 0, "a synchronization whose needs are all met must have ended already");
  return end;
}

// The released check at a synchronization that suspends `gpu` (see program.cc).
bool Synchronization::intersects(int gpu) const {
  const Gpu& state = gpus_[gpu];
  const bool launched_meets = std::any_of(state.needs.begin(), state.needs.end(),
                                          [this](const Need& need) { return gpus_[need.gpu].suspended; });
  if (!launched_meets) return false;
  return std::any_of(suspended_.begin(), suspended_.end(), [&](int other) {
    const std::vector<Need>& needs = gpus_[other].needs;
    return std::any_of(needs.begin(), needs.end(),
                       [&](const Need& need) { return need.gpu == gpu && need.launches > state.launches; });
  });
}

}  // namespace starling::study
