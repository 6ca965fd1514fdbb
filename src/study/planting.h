// Importance sampling of rare deadlocks: events without which there is no deadlock are planted, the rest of
// the round is drawn as always.
//
// A deadlock needs at least one of many equally simple events A_1 ... A_n ("GPU g passes something over in
// turn t"). Draw one of them in proportion to P(A_i), draw a round given A_i, and count sum(P(A_i)) / (how
// many of the A happened) if it deadlocks. The mean of that is the probability of a deadlock, exactly: a
// round in which k of the A happened is drawn sum over those A_i of P(A_i)/sum * P(round)/P(A_i) = k/sum
// times as often as by itself. The count is never above sum(P(A_i)), so its variance is bounded (Adler,
// Blanchet and Liu, "Efficient Monte Carlo for high excursions of Gaussian random fields", use the same
// change of measure).
#pragma once

#include <memory>
#include <vector>

#include "study/events.h"
#include "study/model.h"
#include "study/random.h"

namespace starling::study {

enum class Decision { exact, released };

class HeldChain;

class Planting {
 public:
  Planting(const Model& model, const RoundEvents& layout, Decision decision);
  ~Planting();
  Planting(const Planting&) = delete;
  Planting& operator=(const Planting&) = delete;

  double total() const { return total_; }  // sum of P(A_i); an upper bound of the probability
  // Draws a round with one planted event; returns what it counts for if it deadlocks.
  double draw(Random& random, RoundEvents& events) const;

 private:
  enum class Event {
    pass,             // single queue: a turn that passes something over
    divided_span,     // synchronization, exact: a synchronization while something is held back
    synchronization,  // synchronization, as released: any one
  };
  double draw_pass(Random& random, RoundEvents& events) const;
  double draw_divided_span(Random& random, RoundEvents& events) const;
  double draw_synchronization(Random& random, RoundEvents& events) const;

  Event event_;
  double total_ = 0;
  double disorder_probability_;
  std::vector<std::unique_ptr<HeldChain>> chains_;  // one per length of list
  std::vector<int> chain_of_gpu_;
  std::vector<double> weight_before_;  // by GPU: sum of P(A_i) of the GPUs before it
};

}  // namespace starling::study
