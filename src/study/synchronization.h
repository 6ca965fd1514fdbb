// The synchronization model on sparse events: from one synchronization or resumption to the next.
//
// Between these a GPU launches one collective a turn, so its progress is a straight line, and when a
// collective completes follows from the lines of its members. What a synchronization waits for is known when
// it is reached: for every group, how far each other member must get. The turns in between are never looked
// at.
#pragma once

#include <cstdint>
#include <vector>

#include "study/events.h"
#include "study/model.h"

namespace starling::study {

struct Verdict {
  bool exact = false;
  bool released = false;
};

class Synchronization {
 public:
  // `events` are those of the component's GPUs, in its order. What is not wanted may stay false.
  Verdict run(const Component& component, const GpuEvents* events, Verdict wanted);

 private:
  using Time = std::int64_t;  // turn * GPUs + GPU: GPUs take their turns in order
  struct Need {               // this GPU must have done that many launches
    int gpu;
    int launches;
  };
  struct Gpu {
    std::int64_t turn =
        0;       // at which launch number `launches` happens, unless a synchronization is before it
    int launches = 0;            // done at that turn
    int limit = 0;               // launches done at the next synchronization, or at the end
    std::size_t synchronizations = 0;  // reached so far
    bool suspended = false;
    std::vector<Need> needs;     // of the synchronization that suspends it, unmet when it was reached
  };

  void go_on(int gpu, std::int64_t turn);
  void reach(int gpu, Time now, Verdict& verdict);
  void resume(int gpu, Time completed);
  void collect_needs(int gpu, Time now);
  Time end_of_suspension(int gpu) const;
  int launches_at(int gpu, Time now) const;
  bool intersects(int gpu) const;
  // Launches after which `other` has launched all of a group's collectives that `gpu` launched before `cut`.
  int required(int gpu, int slot, int cut, int other, int other_slot) const;
  int newest(int gpu, int slot, int cut) const;

  static constexpr Time kNeverHappens = kNever;

  const Component* component_ = nullptr;
  const GpuEvents* events_ = nullptr;
  std::vector<Gpu> gpus_;
  std::vector<Time> next_event_;  // by GPU: its synchronization, or the end of its suspension
  std::vector<int> suspended_;
};

}  // namespace starling::study
