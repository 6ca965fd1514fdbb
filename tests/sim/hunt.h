// Looks for a planted bug: seeds one after the other, in a process of its own, as some bugs crash it.
#pragma once
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "machine/sim/campaign.h"
#include "sim/awaited_soon.h"
#include "sim/calls_in_a_row.h"
#include "sim/crossed_messages.h"
#include "sim/crowded_replays.h"
#include "sim/crowded_watches.h"
#include "sim/long_puts.h"
#include "sim/many_packets.h"
#include "sim/mutants.h"
#include "sim/one_lane.h"
#include "sim/overwritten_part.h"
#include "support/in_child.h"

namespace starling::sim {

// What a daemon does in vain until then is most of the time of many a hunt. Timeouts are 2 ms.
inline constexpr uint64_t kProgressBoundMs = 8;
inline constexpr uint64_t kOneLaneEvery = 8;  // so many seeds: of one_lane.h
inline constexpr uint64_t kCrossedEvery = 8;  // likewise, 4 later: of crossed_messages.h
inline constexpr uint64_t kCrowdedEvery = 16;  // likewise, 14 later: of crowded_replays.h
inline constexpr uint64_t kAwaitedEvery = 32;  // likewise, 10 later: of awaited_soon.h
inline constexpr uint64_t kWatchesEvery = 32;  // likewise, 6 later: of crowded_watches.h
inline constexpr uint64_t kOverwrittenEvery = 32;  // likewise, 26 later: of overwritten_part.h
inline constexpr uint64_t kLongEvery = 32;  // likewise, 18 later: of long_puts.h
inline constexpr uint64_t kPacketsEvery = 32;  // likewise, 22 later: of many_packets.h
inline constexpr uint64_t kCallsEvery = 32;  // likewise, 17 later: of calls_in_a_row.h; the others: `mixed`

struct Found {
  bool found = false;
  double seconds = 0;
  uint64_t seeds = 0;
  std::string how;  // campaign and seed, and what was seen
};

namespace hunting {

// A case that the shipped core fails too, in so short a bound, shows nothing.
inline bool shipped_is_right(const Case& drawn) {
  return Simulation().run(drawn.program, drawn.options, drawn.seed).ok();
}

// Whether the seed has a case that only hunts draw, and which.
struct Special {
  explicit Special(uint64_t seed)
      : one_lane(seed % kOneLaneEvery == 0),
        crossed(seed % kCrossedEvery == 4),
        crowded(seed % kCrowdedEvery == 14),
        awaited(seed % kAwaitedEvery == 10),
        watches(seed % kWatchesEvery == 6),
        overwritten(seed % kOverwrittenEvery == 26),
        puts(seed % kLongEvery == 18),
        packets(seed % kPacketsEvery == 22),
        calls(seed % kCallsEvery == 17) {}
  bool any() const {
    return one_lane || crossed || crowded || awaited || watches || overwritten || puts || packets || calls;
  }
  const bool one_lane, crossed, crowded, awaited, watches, overwritten, puts, packets, calls;
};

// Whether a hunt in this campaign comes to the seed. Seeds have there the cases that they have in `mixed`.
inline bool is_of(Campaign campaign, uint64_t seed) {
  return campaign == Campaign::kMixed || (turn_in_mixed(seed) == campaign && !Special(seed).any());
}

// What goes wrong in this seed: campaign and seed, and what was seen. Empty: nothing.
inline std::string look_at(Simulation& simulation, const Core& core, uint64_t seed) {
  const Campaign campaign = turn_in_mixed(seed);
  const Special special(seed);
  Case drawn = special.one_lane      ? one_lane_of_packets(seed, simulation.plans())
               : special.crossed     ? crossed_messages(seed, simulation.plans())
               : special.crowded     ? crowded_replays(seed, simulation.plans())
               : special.awaited     ? awaited_soon(seed, simulation.plans())
               : special.watches     ? crowded_watches(seed, simulation.plans())
               : special.overwritten ? overwritten_part(seed)
               : special.puts        ? long_puts(seed)
               : special.packets     ? many_packets(seed, simulation.plans())
               : special.calls       ? calls_in_a_row(seed, simulation.plans())
                                     : draw_case(campaign, seed, simulation.plans());
  drawn.options.progress_bound_ns = kProgressBoundMs * 1'000'000;
  drawn.options.step_bound = 20'000'000;
  const Report report = simulation.run(drawn.program, drawn.options, drawn.seed);
  if (report.ok() || (&core != &shipped_core() && !shipped_is_right(drawn))) return {};
  return (special.any() ? drawn.program.name : campaign_name(campaign)) + " seed " + std::to_string(seed) +
         ": " + report.failure;
}

// The seed that it came to, and what was seen there, if anything was.
inline std::string look(const Core& core, Campaign campaign, double seconds, uint64_t known_seed) {
  Simulation simulation(core);
  const auto start = std::chrono::steady_clock::now();
  if (known_seed != 0)
    if (const std::string seen = look_at(simulation, core, known_seed); !seen.empty())
      return std::to_string(known_seed) + " " + seen;
  for (uint64_t seed = 1;; ++seed) {
    if (!is_of(campaign, seed)) continue;
    if (const std::string seen = look_at(simulation, core, seed); !seen.empty())
      return std::to_string(seed) + " " + seen;
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > seconds)
      return std::to_string(seed);
  }
}

}  // namespace hunting

// Of nullptr: the shipped code. `known_seed` is looked at first; 0: none. Then seeds from 1 on, until the
// time is over.
inline Found hunt(const Mutant* mutant, double seconds, uint64_t known_seed = 0) {
  const auto start = std::chrono::steady_clock::now();
  const Campaign campaign = mutant ? campaign_named(mutant->campaign).value() : Campaign::kMixed;
  const Outcome outcome = in_child(
      [&] { return hunting::look(mutant ? plant(*mutant) : shipped_core(), campaign, seconds, known_seed); });
  const std::string& text = outcome.text;
  Found found;
  found.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  found.seeds = text.empty() ? 0 : std::strtoull(text.c_str(), nullptr, 10);
  const size_t space = text.find(' ');
  if (outcome.signal != 0) {
    found.found = true;
    found.how = "the process crashed, signal " + std::to_string(outcome.signal);
  } else if (space != std::string::npos) {
    found.found = true;
    found.how = text.substr(space + 1);
  }
  return found;
}

}  // namespace starling::sim
