#include "study/events.h"

#include <algorithm>

namespace starling::study {

void GpuEvents::clear() {
  spans.clear();
  taken.clear();
  synchronizations.clear();
  passing_turns = 0;
}

const Span* GpuEvents::span_at(int place) const {
  const auto after = std::upper_bound(spans.begin(), spans.end(), place,
                                      [](int value, const Span& span) { return value < span.begin; });
  if (after == spans.begin()) return nullptr;
  const Span& span = *(after - 1);
  return place < span.end ? &span : nullptr;
}

int GpuEvents::place_of_launch(int launch) const {
  const Span* span = span_at(launch);
  return span == nullptr ? launch : taken[span->first + launch - span->begin];
}

int GpuEvents::launch_of_place(int place) const {
  const Span* span = span_at(place);
  if (span == nullptr) return place;
  const int* first = taken.data() + span->first;
  const int* found = std::find(first, first + (span->end - span->begin), place);
  return span->begin + static_cast<int>(found - first);
}

const Span* GpuEvents::span_across(int cut) const {
  const Span* span = span_at(cut);
  return span != nullptr && span->begin < cut ? span : nullptr;
}

int GpuEvents::inverted_cuts() const {
  if (spans.empty()) return 0;
  int count = 0;
  int last = -1;
  for (int cut : synchronizations) {
    if (cut != last && span_across(cut) != nullptr) ++count;
    last = cut;
  }
  return count;
}

void Walk::take(int passed, GpuEvents& events) {
  if (passed > 0) ++events.passing_turns;
  if (held_.empty()) {
    if (passed == 0) {
      ++next_;
      ++launch_;
      return;
    }
    events.spans.push_back({launch_, launch_, static_cast<int>(events.taken.size())});
  }
  if (passed < held()) {
    events.taken.push_back(held_[passed]);
    held_.erase(held_.begin() + passed);
  } else {
    for (int left = passed - held(); left > 0; --left) held_.push_back(next_++);
    events.taken.push_back(next_++);
  }
  events.spans.back().end = ++launch_;
}

int Walk::draw_passed(Random& random, double probability, int at_least) const {
  int passed = at_least;
  while (passed < remaining() - 1 && random.chance(probability)) ++passed;
  return passed;
}

RoundEvents::RoundEvents(const Model& model)
    : disorder_probability_(model.setting().disorder_probability),
      disorder_gap_(model.setting().disorder_probability),
      synchronization_gap_(model.setting().synchronization_probability),
      synchronizes_(model.setting().rule == Rule::synchronization),
      gpus_(model.gpus()) {
  first_turn_.push_back(0);
  first_cut_.push_back(0);
  for (std::size_t i = 0; i < model.placements().size(); ++i) {
    first_gpu_.push_back(static_cast<int>(placement_of_.size()));
    for (const GpuList& list : model.component(model.placements()[i]).lists) {
      placement_of_.push_back(static_cast<int>(i));
      first_turn_.push_back(first_turn_.back() + list.length() - 1);
      first_cut_.push_back(first_cut_.back() + list.length());
    }
  }
}

void RoundEvents::clear() {
  for (int gpu : touched_) gpus_[gpu].clear();
  touched_.clear();
}

RoundEvents::Site RoundEvents::site(const std::vector<std::int64_t>& first, std::int64_t number) {
  const auto after = std::upper_bound(first.begin(), first.end(), number);
  const int gpu = static_cast<int>(after - first.begin()) - 1;
  return {gpu, static_cast<int>(number - first[gpu])};
}

void RoundEvents::draw(Random& random) {
  clear();
  draw_disorder_except(random, -1);
  if (synchronizes_) draw_synchronizations(random);
}

// Jumps over the turns of all GPUs to the next that passes something over, walks until nothing is held back,
// and jumps again. A jump that lands on `skipped_gpu`, which is drawn elsewhere, goes on behind it.
void RoundEvents::draw_disorder_except(Random& random, int skipped_gpu) {
  std::int64_t turn = disorder_gap_.draw(random);
  while (turn < turns()) {
    const Site found = turn_site(turn);
    if (found.gpu == skipped_gpu) {
      turn = first_turn_[found.gpu + 1] + disorder_gap_.draw(random);
      continue;
    }
    GpuEvents& events = gpus_[found.gpu];
    touch(found.gpu);
    Walk walk(length(found.gpu), found.index);
    walk.take(walk.draw_passed(random, disorder_probability_, 1), events);
    while (walk.held() > 0) walk.take(walk.draw_passed(random, disorder_probability_, 0), events);
    turn = std::min(first_turn_[found.gpu] + walk.launch(), first_turn_[found.gpu + 1]) +
           disorder_gap_.draw(random);
  }
}

void RoundEvents::draw_disorder_of(Random& random, int gpu, int from, int forced_turn) {
  touch(gpu);
  const int last_choice = length(gpu) - 1;
  std::int64_t turn = from + disorder_gap_.draw(random);
  while (true) {
    if (forced_turn >= from && turn > forced_turn) turn = forced_turn;
    if (turn >= last_choice) return;
    Walk walk(length(gpu), static_cast<int>(turn));
    walk.take(walk.draw_passed(random, disorder_probability_, 1), gpus_[gpu]);
    while (walk.held() > 0) {
      walk.take(walk.draw_passed(random, disorder_probability_, walk.launch() == forced_turn ? 1 : 0),
                gpus_[gpu]);
    }
    if (walk.launch() > forced_turn) forced_turn = -1;
    from = walk.launch();
    turn = from + disorder_gap_.draw(random);
  }
}

// A synchronization takes a turn and leaves the GPU where it is: the next one may be at the same cut.
void RoundEvents::draw_synchronizations(Random& random) {
  for (std::int64_t cut = synchronization_gap_.draw(random); cut < cuts();
       cut += synchronization_gap_.draw(random)) {
    const Site found = cut_site(cut);
    touch(found.gpu);
    gpus_[found.gpu].synchronizations.push_back(found.index);
  }
}

void RoundEvents::add_synchronization(int gpu, int cut) {
  std::vector<int>& cuts = gpus_[gpu].synchronizations;
  cuts.insert(std::upper_bound(cuts.begin(), cuts.end(), cut), cut);
  touch(gpu);
}

}  // namespace starling::study
