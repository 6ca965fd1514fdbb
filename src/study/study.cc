#include "study/study.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "study/round.h"

namespace starling::study {
namespace {

constexpr std::int64_t kRoundsPerChunk = 64;

// Chunks of rounds over threads. `make` gives each thread its own scratch, `run(scratch, first, last)` does a
// chunk; the results come back in the order of the rounds, so sums of them do not depend on the threads.
template <typename Result, typename Make, typename Run>
std::vector<Result> over_rounds(const Work& work, Make make, Run run) {
  const std::int64_t chunks = (work.rounds + kRoundsPerChunk - 1) / kRoundsPerChunk;
  std::vector<Result> results(chunks);
  std::atomic<std::int64_t> next{0};
  std::atomic<std::int64_t> done{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::condition_variable finished;
  int running = work.threads > 0 ? work.threads : std::max(1u, std::thread::hardware_concurrency());
  running = static_cast<int>(std::min<std::int64_t>(running, std::max<std::int64_t>(1, chunks)));
  std::exception_ptr failure;

  const auto serve = [&] {
    try {
      auto scratch = make();
      for (std::int64_t chunk = next++; chunk < chunks && !stop; chunk = next++) {
        const std::int64_t first = chunk * kRoundsPerChunk;
        const std::int64_t last = std::min(work.rounds, first + kRoundsPerChunk);
        results[chunk] = run(*scratch, first, last);
        done += last - first;
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
      stop = true;
    }
    const std::lock_guard lock(mutex);
    --running;
    finished.notify_one();  // under the lock: the waiter may destroy it as soon as the lock is free
  };
  {
    std::vector<std::jthread> threads;
    for (int i = running; i > 0; --i) threads.emplace_back(serve);
    std::unique_lock lock(mutex);
    while (!finished.wait_for(lock, std::chrono::milliseconds(100), [&] { return running == 0; })) {
      lock.unlock();
      try {
        if (work.progress && !work.progress(done)) stop = true;
      } catch (...) {
        const std::lock_guard other(mutex);
        failure = std::current_exception();
        stop = true;
      }
      lock.lock();
    }
  }
  if (failure) std::rethrow_exception(failure);
  if (stop) throw Error(Code::aborted, "the study was stopped after " + std::to_string(done) + " rounds");
  if (work.progress) work.progress(done);
  return results;
}

struct Scratch {
  explicit Scratch(const Model& model) : events(model), judge(model) {}
  RoundEvents events;
  RoundJudge judge;
};

void require_rounds(const Work& work) {
  if (work.rounds <= 0) {
    throw Error(Code::invalid_argument, "rounds is " + std::to_string(work.rounds),
                "ask for at least one round");
  }
}

// Planted samples and plain rounds of one seed must not share their random numbers.
std::uint64_t planted_seed(std::uint64_t seed) { return hash_combine(seed, hash64("planted")); }

}  // namespace

Counts count_deadlocks(const Model& model, const Work& work, Verdict wanted) {
  require_rounds(work);
  const auto chunks = over_rounds<Counts>(
      work, [&] { return std::make_unique<Scratch>(model); },
      [&](Scratch& scratch, std::int64_t first, std::int64_t last) {
        Counts counts;
        for (std::int64_t round = first; round < last; ++round) {
          Random random(work.seed, round);
          scratch.events.draw(random);
          const Verdict verdict = scratch.judge.judge(scratch.events, wanted);
          counts.exact += verdict.exact;
          counts.released += verdict.released;
          counts.both += verdict.exact && verdict.released;
          counts.calm += scratch.events.touched().empty();
        }
        return counts;
      });
  Counts sum;
  sum.rounds = work.rounds;
  for (const Counts& chunk : chunks) {
    sum.exact += chunk.exact;
    sum.released += chunk.released;
    sum.both += chunk.both;
    sum.calm += chunk.calm;
  }
  return sum;
}

Estimate estimate_deadlocks(const Model& model, const Work& work, Decision decision) {
  require_rounds(work);
  const RoundEvents layout(model);
  const Planting planting(model, layout, decision);
  if (decision == Decision::released && RoundJudge(model).released_without_disorder()) {
    throw Error(Code::invalid_argument,
                "the released check reports a deadlock in rounds without any disorder",
                "count deadlocks directly, their ratio is not small");
  }
  Estimate estimate;
  estimate.samples = work.rounds;
  estimate.bound = std::min(1.0, planting.total());
  if (planting.total() == 0) return estimate;

  struct Sums {
    double value = 0;
    double square = 0;
    std::int64_t hits = 0;
  };
  const Verdict wanted{decision == Decision::exact, decision == Decision::released};
  const std::uint64_t seed = planted_seed(work.seed);
  const auto chunks = over_rounds<Sums>(
      work, [&] { return std::make_unique<Scratch>(model); },
      [&](Scratch& scratch, std::int64_t first, std::int64_t last) {
        Sums sums;
        for (std::int64_t round = first; round < last; ++round) {
          Random random(seed, round);
          const double counts_for = planting.draw(random, scratch.events);
          const Verdict verdict = scratch.judge.judge(scratch.events, wanted);
          if (!verdict.exact && !verdict.released) continue;
          ++sums.hits;
          sums.value += counts_for;
          sums.square += counts_for * counts_for;
        }
        return sums;
      });
  Sums sum;
  for (const Sums& chunk : chunks) {
    sum.value += chunk.value;
    sum.square += chunk.square;
    sum.hits += chunk.hits;
  }
  const double samples = static_cast<double>(work.rounds);
  estimate.hits = sum.hits;
  estimate.probability = sum.value / samples;
  const double variance = std::max(0.0, sum.square / samples - estimate.probability * estimate.probability);
  estimate.standard_error = std::sqrt(variance / samples);
  return estimate;
}

double single_group_probability(int gpus, int collectives, double disorder_probability) {
  const double p = disorder_probability;
  if (gpus < 1 || collectives < 1 || !(p >= 0 && p <= 1)) {
    throw Error(Code::invalid_argument,
                "a group of " + std::to_string(gpus) + " GPUs with " + std::to_string(collectives) +
                    " collectives and probability " + std::to_string(p),
                "give at least one GPU and collective, and a probability between 0 and 1");
  }
  // With r elements left, all GPUs pass over the same number: sum over k of P(k)^gpus. Logarithms of 1 +
  // (that - 1), so that probabilities of 1e-12 keep their digits.
  double log_agree = 0;
  for (int remaining = 2; remaining <= collectives; ++remaining) {
    double less_one =
        std::expm1(gpus * std::log1p(-p)) + std::pow(p, static_cast<double>(remaining - 1) * gpus);
    for (int passed = 1; passed < remaining - 1; ++passed) {
      const double term = std::pow(std::pow(p, passed) * (1 - p), gpus);
      if (term < 1e-300) break;
      less_one += term;
    }
    log_agree += std::log1p(less_one);
  }
  return -std::expm1(log_agree);
}

std::int64_t harmful_turns(const Model& model) {
  SingleQueue judge;
  std::vector<std::int64_t> of_component;
  for (const Component& component : model.components()) {
    std::vector<GpuEvents> events(component.gpus());
    std::int64_t harmful = 0;
    for (int gpu = 0; gpu < component.gpus(); ++gpu) {
      for (int turn = 0; turn + 1 < component.lists[gpu].length(); ++turn) {
        Walk walk(component.lists[gpu].length(), turn);
        walk.take(1, events[gpu]);
        walk.take(0, events[gpu]);
        harmful += judge.deadlocks(component, events.data());
        events[gpu].clear();
      }
    }
    of_component.push_back(harmful);
  }
  std::int64_t sum = 0;
  for (const Placement& placement : model.placements()) sum += of_component[placement.component];
  return sum;
}

Program round_program(const Model& model, std::uint64_t seed, std::int64_t round) {
  RoundEvents events(model);
  Random random(seed, round);
  events.draw(random);
  return to_program(model, events);
}

std::vector<std::int64_t> find_deadlocks(const Model& model, const Work& work, std::int64_t count) {
  require_rounds(work);
  std::atomic<std::int64_t> enough{
      work.rounds};  // rounds from here on need no look: `count` were found before them
  std::mutex mutex;
  std::vector<std::int64_t> found;
  over_rounds<int>(
      work, [&] { return std::make_unique<Scratch>(model); },
      [&](Scratch& scratch, std::int64_t first, std::int64_t last) {
        for (std::int64_t round = first; round < last && round < enough; ++round) {
          Random random(work.seed, round);
          scratch.events.draw(random);
          if (!scratch.judge.judge(scratch.events, {true, false}).exact) continue;
          const std::lock_guard lock(mutex);
          found.insert(std::upper_bound(found.begin(), found.end(), round), round);
          if (static_cast<std::int64_t>(found.size()) >= count) enough = found[count - 1];
        }
        return 0;
      });
  if (static_cast<std::int64_t>(found.size()) > count) found.resize(count);
  return found;
}

std::vector<Program> planted_deadlocks(const Model& model, const Work& work, std::int64_t count) {
  require_rounds(work);
  Scratch scratch(model);
  const Planting planting(model, scratch.events, Decision::exact);
  std::vector<Program> found;
  if (planting.total() == 0) return found;
  const std::uint64_t seed = planted_seed(work.seed);
  for (std::int64_t round = 0; round < work.rounds && static_cast<std::int64_t>(found.size()) < count;
       ++round) {
    Random random(seed, round);
    planting.draw(random, scratch.events);
    const int placement = scratch.judge.deadlocked_placement(scratch.events);
    if (placement >= 0) found.push_back(to_program(model, scratch.events, placement));
  }
  return found;
}

}  // namespace starling::study
