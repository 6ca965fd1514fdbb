// Settings that the tests of whole studies share.
#pragma once
#include "study/study.h"

namespace starling::study {

inline Work work(std::int64_t rounds, int threads = 1) {
  Work work;
  work.rounds = rounds;
  work.seed = 11;
  work.threads = threads;
  return work;
}

inline Setting three_d(Rule rule, double disorder, double synchronization) {
  Setting setting;
  setting.rule = rule;
  setting.gpus = 18;
  setting.groups = three_d_groups({3, 3, 2, 40, 90});
  setting.disorder_probability = disorder;
  setting.synchronization_probability = synchronization;
  return setting;
}

}  // namespace starling::study
