// Small random models for the tests of the study: overlapping groups in any order, few GPUs, much disorder.
#pragma once

#include <algorithm>
#include <vector>

#include "study/model.h"
#include "study/random.h"

namespace starling::study {

inline Setting random_setting(Random& random, Rule rule) {
  Setting setting;
  setting.rule = rule;
  setting.order = random.chance(0.5) ? Order::interleaved : Order::concatenated;
  setting.gpus = 1 + static_cast<int>(random.below(6));
  std::vector<bool> grouped(setting.gpus, false);
  const auto add = [&](std::vector<int> gpus, int collectives) {
    if (gpus.empty()) return;
    for (int gpu : gpus) grouped[gpu] = true;
    if (random.chance(0.3)) std::reverse(gpus.begin(), gpus.end());
    setting.groups.push_back({std::move(gpus), collectives});
  };
  for (std::int64_t groups = random.below(5); groups >= 0; --groups) {
    std::vector<int> gpus;
    for (int gpu = 0; gpu < setting.gpus; ++gpu) {
      if (random.chance(0.6)) gpus.push_back(gpu);
    }
    add(std::move(gpus), 1 + static_cast<int>(random.below(random.chance(0.3) ? 30 : 6)));
  }
  std::vector<int> rest;
  for (int gpu = 0; gpu < setting.gpus; ++gpu) {
    if (!grouped[gpu]) rest.push_back(gpu);
  }
  add(std::move(rest), 2);
  setting.disorder_probability = random.chance(0.2) ? 0 : 0.7 * random.uniform() * random.uniform();
  setting.synchronization_probability = 0.7 * random.uniform() * random.uniform();
  return setting;
}

}  // namespace starling::study
