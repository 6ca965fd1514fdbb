#include "study/round.h"

#include <algorithm>

namespace starling::study {

RoundJudge::RoundJudge(const Model& model) : model_(model), is_touched_(model.placements().size(), false) {
  if (model.setting().rule != Rule::single_queue) return;
  for (const Component& component : model.components()) {
    const std::vector<GpuEvents> none(component.gpus());
    calm_verdict_.push_back(single_queue_.released_deadlocks(component, none.data()));
  }
  for (std::size_t i = 0; i < model.placements().size(); ++i) {
    if (calm_verdict_[model.placements()[i].component]) calm_deadlocks_.push_back(static_cast<int>(i));
  }
}

void RoundJudge::find_touched(const RoundEvents& events) {
  for (int placement : touched_) is_touched_[placement] = false;
  touched_.clear();
  for (int gpu : events.touched()) {
    const int placement = events.placement_of(gpu);
    if (is_touched_[placement]) continue;
    is_touched_[placement] = true;
    touched_.push_back(placement);
  }
}

Verdict RoundJudge::judge(const RoundEvents& events, Verdict wanted) {
  find_touched(events);
  Verdict verdict;
  if (wanted.released) {
    verdict.released = std::any_of(calm_deadlocks_.begin(), calm_deadlocks_.end(),
                                   [this](int placement) { return !is_touched_[placement]; });
  }
  for (int placement : touched_) {
    const Verdict missing{wanted.exact && !verdict.exact, wanted.released && !verdict.released};
    if (!missing.exact && !missing.released) break;
    const Verdict one = judge_placement(events, placement, missing);
    verdict.exact |= missing.exact && one.exact;
    verdict.released |= missing.released && one.released;
  }
  return verdict;
}

int RoundJudge::deadlocked_placement(const RoundEvents& events) {
  find_touched(events);
  std::sort(touched_.begin(), touched_.end());
  for (int placement : touched_) {
    if (judge_placement(events, placement, {true, false}).exact) return placement;
  }
  return -1;
}

Verdict RoundJudge::judge_placement(const RoundEvents& events, int placement, Verdict wanted) {
  const Component& component = model_.component(model_.placements()[placement]);
  const GpuEvents* mine = &events.at(events.first_gpu(placement));
  if (model_.setting().rule == Rule::single_queue) {
    return {wanted.exact && single_queue_.deadlocks(component, mine),
            wanted.released && single_queue_.released_deadlocks(component, mine)};
  }
  // Launched sets that are all beginnings of the lists cannot wait for each other in a circle (all lists
  // follow one order): an exact deadlock needs a synchronization that divides a span. Either needs two GPUs
  // that synchronize.
  int synchronizing = 0;
  int inverted = 0;
  for (int gpu = 0; gpu < component.gpus(); ++gpu) {
    synchronizing += !mine[gpu].synchronizations.empty();
    inverted += mine[gpu].inverted_cuts();
  }
  wanted.exact = wanted.exact && inverted > 0;
  if (synchronizing < 2 || (!wanted.exact && !wanted.released)) return {};
  return synchronization_.run(component, mine, wanted);
}

}  // namespace starling::study
