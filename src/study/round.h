// One round: are its events a deadlock?
#pragma once

#include <vector>

#include "study/events.h"
#include "study/model.h"
#include "study/single_queue.h"
#include "study/synchronization.h"

namespace starling::study {

// Scratch memory of one thread.
class RoundJudge {
 public:
  explicit RoundJudge(const Model& model);

  // Looks only at components whose events could make a deadlock. What is not wanted stays false.
  Verdict judge(const RoundEvents& events, Verdict wanted);
  // The first placement with an exact deadlock, or -1.
  int deadlocked_placement(const RoundEvents& events);
  // The released single-queue check calls some components a deadlock even without any disorder.
  bool released_without_disorder() const { return !calm_deadlocks_.empty(); }

 private:
  Verdict judge_placement(const RoundEvents& events, int placement, Verdict wanted);
  void find_touched(const RoundEvents& events);

  const Model& model_;
  SingleQueue single_queue_;
  Synchronization synchronization_;
  std::vector<bool> calm_verdict_;     // by component: released single-queue verdict without disorder
  std::vector<int> calm_deadlocks_;    // placements with that verdict
  std::vector<int> touched_;           // placements with events, each once
  std::vector<bool> is_touched_;
};

}  // namespace starling::study
