#include "comm/profile.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "base/thread.h"
#include "comm/daemon_memory.h"

namespace starling {
namespace {

uint64_t median(std::vector<uint64_t> samples) {
  std::nth_element(samples.begin(), samples.begin() + samples.size() / 2, samples.end());
  return samples[samples.size() / 2];
}

// From a ring to the sleeper's answer and back: two wake-ups.
uint64_t measure_wake_ns() {
  constexpr int kRounds = 64;
  uint32_t turn = 0;
  std::atomic_ref<uint32_t> word(turn);
  auto pass_to = [&](uint32_t value) {
    word.store(value, std::memory_order_release);
    cpu::futex_wake_all(&turn);
  };
  auto wait_for = [&](uint32_t value) {
    for (uint32_t seen = word.load(std::memory_order_acquire); seen != value;
         seen = word.load(std::memory_order_acquire))
      cpu::futex_wait(&turn, seen, 100'000'000);
  };
  std::thread other = start_thread("st-profile", [&] {
    for (int k = 0; k < kRounds; ++k) {
      wait_for(1);
      pass_to(0);
    }
  });
  std::vector<uint64_t> samples;
  for (int k = 0; k < kRounds; ++k) {
    const uint64_t start = cpu::monotonic_ns();
    pass_to(1);
    wait_for(0);
    samples.push_back((cpu::monotonic_ns() - start) / 2);
  }
  other.join();
  return median(samples);
}

}  // namespace

// Competitive waiting: give a peer as long as it costs to be woken again, no longer. A front task waits for
// two wake-ups (the peer may just be starting), the rest a part of one; the daemon leaves when it has waited
// for some hundred.
starling_scheduling profile_scheduling(Context& context) {
  // Blocks of a GPU do not sleep: nothing to measure.
  if (!context.place().traits().notifies) return scheduling_to(context.scheduling());
  const uint64_t wake = std::clamp<uint64_t>(measure_wake_ns(), 500, 200'000);
  Scheduling s = context.scheduling();
  s.initial_budget = 2 * wake;
  s.minimum_budget = std::max<uint64_t>(wake / 16, 200);
  s.maximum_budget = 20 * wake;
  s.success_factor = 20;
  s.quit_period = std::clamp<uint64_t>(50 * wake, 100'000, 5'000'000);
  context.set_scheduling(s);
  return scheduling_to(s);
}

}  // namespace starling
