// An explicit sequence of events for every GPU, and the plain judge of it.
//
// This is the slow and obvious form: recorded launches of a real job, shrunk deadlocks and the tests'
// yardstick of the fast engine all go through it.
#pragma once

#include <vector>

#include "study/events.h"
#include "study/model.h"

namespace starling::study {

inline constexpr int kSynchronize = -1;

struct Program {
  std::vector<std::vector<int>> events;   // per GPU: a collective to launch, or kSynchronize
  std::vector<std::vector<int>> members;  // per collective: its GPUs; each launches it exactly once
  std::vector<int> group;                 // per collective

  int gpus() const { return static_cast<int>(events.size()); }
  int collectives() const { return static_cast<int>(members.size()); }
};

// Where a GPU stands for ever.
struct Blocked {
  int gpu = 0;
  int event = 0;                 // events[gpu][event] is the launch or synchronization that never ends
  std::vector<int> executing;    // its collectives that wait for other GPUs
  std::vector<int> waits_for;    // blocked GPUs that have one of these still behind what blocks them
};

struct Judgement {
  bool exact = false;            // a cycle: some GPU never gets on
  bool released = false;         // the check of the paper's released simulator reports a deadlock
  std::vector<Blocked> blocked;  // the exact decision's; empty without a deadlock
};

// Throws Error when an event names an unknown collective, or a collective is not launched once by each
// member.
void check(const Program& program);

// Checks the program first.
Judgement judge(const Program& program, Rule rule);

// The round that `events` describes; collectives of placement i follow those of placement i - 1.
Program to_program(const Model& model, const RoundEvents& events);
// Its part in one placement: GPUs and collectives numbered inside the component.
Program to_program(const Model& model, const RoundEvents& events, int placement);

}  // namespace starling::study
