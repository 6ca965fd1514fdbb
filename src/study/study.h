// The deadlock study's engine: many rounds of a model on all cores, exactly repeatable from one seed.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "study/model.h"
#include "study/planting.h"
#include "study/program.h"
#include "study/synchronization.h"

namespace starling::study {

struct Work {
  std::int64_t rounds = 0;
  std::uint64_t seed = 1;
  int threads = 0;  // 0: one per core
  // Called on the caller's thread about ten times a second with the rounds done; false stops the work, and
  // the function throws Error(aborted).
  std::function<bool(std::int64_t)> progress;
};

struct Counts {
  std::int64_t rounds = 0;
  std::int64_t exact = 0;     // rounds with a deadlock, by each decision; 0 if not wanted
  std::int64_t released = 0;
  std::int64_t both = 0;      // by both decisions, if both are wanted
  std::int64_t calm = 0;      // rounds without any event
};
// Round i of a seed is the same whatever the number of threads and whatever is wanted.
Counts count_deadlocks(const Model& model, const Work& work, Verdict wanted);

struct Estimate {
  double probability = 0;     // of a deadlock in a round; unbiased
  double standard_error = 0;
  std::int64_t samples = 0;
  std::int64_t hits = 0;      // samples that deadlock
  double bound = 0;           // the probability is surely not above (nor any sample's count)
};
// By planting (planting.h): for probabilities that count_deadlocks would never see.
Estimate estimate_deadlocks(const Model& model, const Work& work, Decision decision);

// Probability that one group of GPUs with a list of `collectives` deadlocks in a single queue, in closed
// form: there is no deadlock exactly when all GPUs launch in the same order, and the turns of a GPU are
// independent.
double single_group_probability(int gpus, int collectives, double disorder_probability);

// For how many (GPU, turn) pairs passing over one element, and nothing else in the round, deadlocks a single
// queue: the deadlock ratio is 1 - exp(-disorder probability x this) while disorder is rare.
std::int64_t harmful_turns(const Model& model);

// The events of one round as count_deadlocks draws it.
Program round_program(const Model& model, std::uint64_t seed, std::int64_t round);
// Numbers of the first rounds that deadlock exactly, at most `count`, looking at `work.rounds` rounds.
std::vector<std::int64_t> find_deadlocks(const Model& model, const Work& work, std::int64_t count);
// Up to `count` deadlocking programs, each one component's part of a planted round: quick to find where
// deadlocks are rare. `work.rounds` bounds the rounds drawn.
std::vector<Program> planted_deadlocks(const Model& model, const Work& work, std::int64_t count);

}  // namespace starling::study
