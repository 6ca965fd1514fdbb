#include "link/sim/walk.h"

#include <algorithm>
#include <vector>

#include "machine/sim/random.h"

namespace starling::link::sim {
namespace {

constexpr uint64_t kMostSteps = 100'000;  // a flow takes hundreds; more is a livelock
constexpr size_t kToldActions = 40;

// Faults at a pace that lets the flow run in between; of the rest, what is certain comes four times of five.
Action choose(const std::vector<Action>& actions, uint32_t fault_chance, starling::sim::Random& random) {
  const auto certain = std::find_if_not(actions.begin(), actions.end(),
                                        [](const Action& a) { return Network::is_certain(a.kind); });
  const auto faults =
      std::find_if(certain, actions.end(), [](const Action& a) { return Network::is_fault(a.kind); });
  const auto any_of = [&](auto first, auto last) { return first[random.below(uint32_t(last - first))]; };
  if (faults != actions.end() && random.chance(fault_chance)) return any_of(faults, actions.end());
  const bool surely = certain == faults || random.below(5) != 0;
  if (certain != actions.begin() && surely) return any_of(actions.begin(), certain);
  if (certain != faults) return any_of(certain, faults);
  return any_of(actions.begin(), actions.end());
}

}  // namespace

FlowSetup draw_setup(uint64_t seed) {
  starling::sim::Random random(seed, 1);
  FlowSetup setup;
  setup.paths = 1 + random.below(kSimPaths);
  setup.policy = Policy(random.below(2));
  setup.transfers = 1 + random.below(64);
  setup.slots = 1 + random.below(kMostSlots);
  setup.faults = random.below(13);
  setup.probation = 1 + random.below(3);
  setup.losses = random.below(2);
  setup.early_timers = random.below(2);
  setup.late = random.below(4);
  setup.completions = random.below(4);
  setup.events = random.below(2);
  setup.resets = random.below(2);
  setup.dying = random.below(8) == 0;
  setup.by_bytes = random.below(2);
  setup.refusals = random.below(2);
  return setup;
}

Walked walk(uint64_t seed, const FlowCore& core) {
  const FlowSetup setup = draw_setup(seed);
  starling::sim::Random random(seed, 2);
  Network network(setup, core);
  const uint32_t fault_chance = 800u << random.below(6);  // in 65536
  std::vector<Action> actions, done;
  Walked walked;
  while (!network.is_over() && walked.failure.empty()) {
    network.actions(actions);
    if (actions.empty()) {
      walked.failure = "nothing can happen any more";
      break;
    }
    done.push_back(choose(actions, fault_chance, random));
    walked.failure = network.apply(done.back());
    if (++walked.steps == kMostSteps) walked.failure = "it does not come to an end";
  }
  walked.epochs = network.state().sender.epoch - 1;
  walked.died = network.state().dead != kNobody;
  if (walked.failure.empty()) return walked;
  walked.failure = "seed " + std::to_string(seed) + ": " + walked.failure + "; " + network.summary();
  for (size_t k = done.size() - std::min(done.size(), kToldActions); k < done.size(); ++k)
    walked.failure += "\n  " + Network::text(done[k]);
  return walked;
}

}  // namespace starling::link::sim
