#include "study/planting.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/assert.h"

namespace starling::study {

// How many elements a GPU holds back (passed over and not launched yet), turn by turn: a Markov chain.
class HeldChain {
 public:
  HeldChain(int length, double probability)
      : length_(length), probability_(probability), sizes_(most_held(length, probability) + 1) {
    distribution_.assign(static_cast<std::size_t>(length) * sizes_, 0.0);
    distribution_[0] = 1;
    for (int turn = 0; turn + 1 < length; ++turn) {
      for (int from = 0; from < sizes_; ++from) {
        const double here = at(turn, from);
        if (here == 0) continue;
        for (int to = std::max(0, from - 1); to < sizes_; ++to) {
          distribution_[static_cast<std::size_t>(turn + 1) * sizes_ + to] += here * step(turn, from, to);
        }
      }
    }
    for (int cut = 0; cut < length; ++cut) {
      held_before_.push_back(total_held_);
      total_held_ += held(cut);
    }
  }

  double total_held() const { return total_held_; }  // over all cuts

  int draw_cut(Random& random) const {
    const double value = random.uniform() * total_held_;
    const auto after = std::upper_bound(held_before_.begin(), held_before_.end(), value);
    return static_cast<int>(after - held_before_.begin()) - 1;
  }

  // Sizes at the cuts from one with nothing held up to `cut`, given that something is held at `cut`; newest
  // first.
  std::vector<int> draw_sizes_back(Random& random, int cut) const {
    std::vector<int> sizes{1};
    for (double left = random.uniform() * held(cut) - at(cut, 1); left >= 0 && sizes[0] + 1 < sizes_;) {
      left -= at(cut, ++sizes[0]);
    }
    for (int turn = cut - 1; sizes.back() > 0; --turn) {
      STARLING_ASSERT(turn >= 0, "a GPU holds nothing back before its first launch");
      const int to = sizes.back();
      double total = 0;
      for (int from = 0; from < sizes_; ++from) total += at(turn, from) * step(turn, from, to);
      double left = random.uniform() * total;
      int from = 0;
      while (from + 1 < sizes_ && (left -= at(turn, from) * step(turn, from, to)) >= 0) ++from;
      sizes.push_back(from);
    }
    return sizes;
  }

 private:
  // Longer rows of passes have a probability below 1e-18 of what is counted.
  static int most_held(int length, double probability) {
    if (probability <= 0) return 0;
    if (probability >= 1) return length - 1;
    return static_cast<int>(std::min<double>(length - 1, 1 + std::ceil(-42 / std::log(probability))));
  }

  double at(int cut, int size) const { return distribution_[static_cast<std::size_t>(cut) * sizes_ + size]; }

  double held(int cut) const {
    double sum = 0;
    for (int size = 1; size < sizes_; ++size) sum += at(cut, size);
    return sum;
  }

  double passes(int turn, int count) const {  // probability to pass over exactly `count`
    const int remaining = length_ - turn;
    if (count >= remaining) return 0;
    return std::pow(probability_, count) * (count == remaining - 1 ? 1 : 1 - probability_);
  }

  double step(int turn, int from, int to) const {
    if (from > 0 && to == from - 1) {
      const int remaining = length_ - turn;
      return from >= remaining ? 1 : 1 - std::pow(probability_, from);
    }
    return to >= from ? passes(turn, to) : 0;
  }

  int length_;
  double probability_;
  int sizes_;
  std::vector<double> distribution_;  // [cut][size]
  std::vector<double> held_before_;   // by cut: sum over the cuts before it
  double total_held_ = 0;
};

Planting::Planting(const Model& model, const RoundEvents& layout, Decision decision)
    : disorder_probability_(model.setting().disorder_probability) {
  const double sync = model.setting().synchronization_probability;
  if (model.setting().rule == Rule::single_queue) {
    event_ = Event::pass;
    total_ = disorder_probability_ * static_cast<double>(layout.turns());
    return;
  }
  if (decision == Decision::released) {
    // "At least i synchronizations at this cut", for every cut and every i from 1 on.
    event_ = Event::synchronization;
    total_ = static_cast<double>(layout.cuts()) * sync / (1 - sync);
    return;
  }
  event_ = Event::divided_span;
  std::map<int, int> chain_of_length;
  for (int gpu = 0; gpu < layout.gpus(); ++gpu) {
    const int length = layout.length(gpu);
    const auto [found, is_new] = chain_of_length.try_emplace(length, static_cast<int>(chains_.size()));
    if (is_new) chains_.push_back(std::make_unique<HeldChain>(length, disorder_probability_));
    chain_of_gpu_.push_back(found->second);
    weight_before_.push_back(total_);
    total_ += sync * chains_[found->second]->total_held();
  }
}

Planting::~Planting() = default;

double Planting::draw(Random& random, RoundEvents& events) const {
  STARLING_ASSERT(total_ > 0, "nothing to plant");
  events.clear();
  switch (event_) {
    case Event::pass: return draw_pass(random, events);
    case Event::divided_span: return draw_divided_span(random, events);
    case Event::synchronization: return draw_synchronization(random, events);
  }
  return 0;
}

namespace {

template <typename Count>
double share(double total, const RoundEvents& events, std::vector<int> gpus, Count count) {
  std::sort(gpus.begin(), gpus.end());
  gpus.erase(std::unique(gpus.begin(), gpus.end()), gpus.end());
  std::int64_t happened = 0;
  for (int gpu : gpus) happened += count(events.at(gpu));
  STARLING_ASSERT(happened > 0, "the planted event is not there");
  return total / static_cast<double>(happened);
}

}  // namespace

double Planting::draw_pass(Random& random, RoundEvents& events) const {
  const RoundEvents::Site site = events.turn_site(random.below(events.turns()));
  events.draw_disorder_except(random, site.gpu);
  events.draw_disorder_of(random, site.gpu, 0, site.index);
  return share(total_, events, events.touched(), [](const GpuEvents& gpu) { return gpu.passing_turns; });
}

double Planting::draw_synchronization(Random& random, RoundEvents& events) const {
  events.draw(random);
  // Given at least i of them, their number is i more than it would be.
  const RoundEvents::Site site = events.cut_site(random.below(events.cuts()));
  const double sync = 1 - static_cast<double>(events.cuts()) / (total_ + static_cast<double>(events.cuts()));
  do {
    events.add_synchronization(site.gpu, site.index);
  } while (random.chance(sync));
  return share(total_, events, events.touched(),
               [](const GpuEvents& gpu) { return static_cast<int>(gpu.synchronizations.size()); });
}

double Planting::draw_divided_span(Random& random, RoundEvents& events) const {
  const double value = random.uniform() * total_;
  const auto after = std::upper_bound(weight_before_.begin(), weight_before_.end(), value);
  const int gpu = static_cast<int>(after - weight_before_.begin()) - 1;
  const HeldChain& chain = *chains_[chain_of_gpu_[gpu]];
  const int cut = chain.draw_cut(random);
  const std::vector<int> sizes = chain.draw_sizes_back(random, cut);
  const int start = cut - static_cast<int>(sizes.size()) + 1;  // nothing is held there

  // Before `start`: as always, given that nothing is held at `start`.
  GpuEvents& mine = events.at(gpu);
  do {
    mine.clear();
    events.draw_disorder_of(random, gpu, 0, -1);
  } while (mine.span_across(start) != nullptr);
  while (!mine.spans.empty() && mine.spans.back().begin >= start) {
    mine.taken.resize(mine.spans.back().first);
    mine.spans.pop_back();
  }

  Walk walk(events.length(gpu), start);
  for (std::size_t i = sizes.size() - 1; i > 0; --i) {
    const int held = sizes[i];
    int passed = sizes[i - 1];
    if (passed < held) {  // one of the held is launched, any number of them may be passed over
      do passed = walk.draw_passed(random, disorder_probability_, 0);
      while (passed >= held);
    }
    walk.take(passed, mine);
  }
  while (walk.held() > 0) walk.take(walk.draw_passed(random, disorder_probability_, 0), mine);
  events.draw_disorder_of(random, gpu, walk.launch(), -1);

  events.draw_disorder_except(random, gpu);
  events.draw_synchronizations(random);
  events.add_synchronization(gpu, cut);  // given at least one, their number is one more than it would be
  return share(total_, events, events.touched(), [](const GpuEvents& each) { return each.inverted_cuts(); });
}

}  // namespace starling::study
