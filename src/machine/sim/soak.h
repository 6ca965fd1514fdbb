// Seed after seed on several threads, for as long as one likes.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "machine/sim/campaign.h"

namespace starling::sim {

struct FailedSeed {
  uint64_t seed;
  std::string failure;
};

class Soak {
 public:
  Soak(Campaign campaign, uint64_t first_seed, uint32_t threads);

  // Adds to the results until the time is up or so many seeds are done in all (0: no limit).
  void run(double seconds, uint64_t seed_limit);

  const Report& total() const { return total_; }
  uint64_t seeds() const { return seeds_; }
  const std::vector<FailedSeed>& failures() const { return failures_; }

 private:
  Campaign campaign_;
  std::atomic<uint64_t> next_seed_;
  uint64_t first_seed_;
  std::vector<std::unique_ptr<Simulation>> simulations_;
  Report total_;
  uint64_t seeds_ = 0;
  std::vector<FailedSeed> failures_;
};

}  // namespace starling::sim
