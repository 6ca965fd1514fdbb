#include "machine/sim/soak.h"

#include <chrono>
#include <mutex>
#include <thread>

namespace starling::sim {

Soak::Soak(Campaign campaign, uint64_t first_seed, uint32_t threads)
    : campaign_(campaign), next_seed_(first_seed), first_seed_(first_seed) {
  for (uint32_t t = 0; t < threads; ++t) simulations_.push_back(std::make_unique<Simulation>());
}

void Soak::run(double seconds, uint64_t seed_limit) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::mutex mutex;
  auto work = [&](Simulation& simulation) {
    while (std::chrono::steady_clock::now() < end) {
      const uint64_t seed = next_seed_++;
      if (seed_limit != 0 && seed - first_seed_ >= seed_limit) {
        --next_seed_;
        return;
      }
      const Case drawn = draw_case(campaign_, seed, simulation.plans());
      const Report report = simulation.run(drawn.program, drawn.options, drawn.seed);
      const std::lock_guard lock(mutex);
      ++seeds_;
      if (!report.ok()) failures_.push_back({seed, report.failure});
      total_.add(report);
    }
  };
  std::vector<std::thread> threads;
  for (size_t t = 1; t < simulations_.size(); ++t) threads.emplace_back(work, std::ref(*simulations_[t]));
  work(*simulations_[0]);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace starling::sim
