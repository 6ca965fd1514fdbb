// The random events of one round: in which order each GPU launches its list, and where it synchronizes.
//
// Disorder and synchronizations are rare, so they are drawn by jumping from one to the next over the places
// of all GPUs; a GPU without any costs nothing. What a GPU does depends on no other GPU and on no time: when
// things happen is for the decision models to find out.
#pragma once

#include <cstdint>
#include <vector>

#include "study/model.h"
#include "study/random.h"

namespace starling::study {

// Launches number begin to end - 1 of a GPU take the places begin to end - 1 of its list, in another order.
struct Span {
  int begin = 0;
  int end = 0;
  int first = 0;  // index into GpuEvents::taken of the place launched as number `begin`
};

struct GpuEvents {
  std::vector<Span> spans;            // ascending and disjoint; outside of them launch n takes place n
  std::vector<int> taken;             // places in launch order, span after span
  std::vector<int> synchronizations;  // cuts, ascending, repeated when repeated: cut n is before launch n
  int passing_turns = 0;              // launches that passed something over

  void clear();
  bool empty() const { return spans.empty() && synchronizations.empty(); }

  // The span with begin <= place < end, or null. Places and launch numbers share spans.
  const Span* span_at(int place) const;
  int place_of_launch(int launch) const;
  int launch_of_place(int place) const;
  // The span that a cut divides (begin < cut < end), or null: then the launches before it are the places
  // before it.
  const Span* span_across(int cut) const;
  // Cuts with at least one synchronization that divide a span.
  int inverted_cuts() const;
};

// All GPUs of a model, component after component.
class RoundEvents {
 public:
  explicit RoundEvents(const Model& model);

  // Draws a round from `random`; what was there before is cleared.
  void draw(Random& random);
  void clear();
  GpuEvents& at(int gpu) { return gpus_[gpu]; }
  const GpuEvents& at(int gpu) const { return gpus_[gpu]; }
  // The first GPU of placement i; the placement's GPUs follow each other.
  int first_gpu(int placement) const { return first_gpu_[placement]; }
  const std::vector<int>& touched() const {
    return touched_;
  }  // GPUs with events, unordered, perhaps repeated
  int placement_of(int gpu) const { return placement_of_[gpu]; }
  int length(int gpu) const { return static_cast<int>(first_cut_[gpu + 1] - first_cut_[gpu]); }
  int gpus() const { return static_cast<int>(gpus_.size()); }
  std::int64_t turns() const { return first_turn_.back(); }  // with a choice, of all GPUs
  std::int64_t cuts() const { return first_cut_.back(); }
  // GPU and its own turn or cut from a number below turns() or cuts().
  struct Site {
    int gpu;
    int index;
  };
  Site turn_site(std::int64_t turn) const { return site(first_turn_, turn); }
  Site cut_site(std::int64_t cut) const { return site(first_cut_, cut); }

  // The parts of draw(), for importance sampling. Disorder of all GPUs but one:
  void draw_disorder_except(Random& random, int skipped_gpu);
  // Disorder of one GPU from turn `from` on, before which nothing is held back; `forced_turn` (-1: none)
  // passes.
  void draw_disorder_of(Random& random, int gpu, int from, int forced_turn);
  void draw_synchronizations(Random& random);
  void add_synchronization(int gpu, int cut);
  void touch(int gpu) { touched_.push_back(gpu); }

 private:
  static Site site(const std::vector<std::int64_t>& first, std::int64_t number);

  double disorder_probability_;
  Gap disorder_gap_;
  Gap synchronization_gap_;
  bool synchronizes_;
  std::vector<GpuEvents> gpus_;
  std::vector<int> touched_;
  std::vector<int> placement_of_;
  std::vector<int> first_gpu_;
  std::vector<std::int64_t> first_turn_;  // prefix sums over GPUs; the last turn of a GPU has no choice
  std::vector<std::int64_t> first_cut_;
};

// The walk of one GPU through the remaining list while some of it was passed over.
class Walk {
 public:
  Walk(int length, int launch) : length_(length), launch_(launch), next_(launch) {}

  // Launches the element behind the first `passed` ones of the remaining list.
  void take(int passed, GpuEvents& events);
  // How many elements the next turn passes over; `at_least` are given.
  int draw_passed(Random& random, double probability, int at_least) const;
  int launch() const { return launch_; }
  int held() const { return static_cast<int>(held_.size()); }
  int remaining() const { return length_ - launch_; }

 private:
  int length_;
  int launch_;             // launches done
  int next_;               // first place that no turn has looked at
  std::vector<int> held_;  // places passed over and not launched yet, ascending
};

}  // namespace starling::study
