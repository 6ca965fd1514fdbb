// Small flows of which everything that can happen is looked at: what fails in them, and how it may show.
#pragma once
#include <tuple>
#include <utility>
#include <vector>

#include "link/sim/network.h"

namespace starling::link::sim {

struct FlowCase {
  const char* name;
  FlowSetup setup;
  bool quick;  // under sanitizers and against planted bugs, too
};

inline FlowSetup silent(FlowSetup setup) {
  setup.late = setup.completions = setup.events = setup.resets = setup.heals = false;
  return setup;
}

enum Faults { kBreaks = 1, kLosses = 2, kEarlyTimers = 4 };

inline FlowSetup only(uint32_t faults, FlowSetup setup) {
  setup.breaks = faults & kBreaks;
  setup.losses = faults & kLosses;
  setup.early_timers = faults & kEarlyTimers;
  return setup;
}

inline const std::vector<FlowCase>& flow_cases() {
  static const std::vector<FlowCase> kCases = [] {
    std::vector<FlowCase> cases;
    const auto add = [&](const char* name, FlowSetup setup, bool quick = false) {
      cases.push_back({name, setup, quick});
    };
    // Cheap ones first: bugs are hunted in this order (hunt.h). Two faults: a second one in every state.
    add("two messages lost, doubled, overtaken, or slow",
        only(kLosses | kEarlyTimers, {.transfers = 4, .faults = 2}), true);
    FlowSetup dying = only(0, {.transfers = 2, .faults = 0});
    dying.dying = true;
    add("an end dies", dying, true);
    dying.breaks = true;
    dying.faults = 1;
    add("a silent break, and an end dies", silent(dying), true);
    add("any two faults, silent", silent({.transfers = 2, .faults = 2}), true);
    add("any two faults, striped, silent",
        silent({.policy = Policy::kStriping, .transfers = 2, .faults = 2}));
    FlowSetup refused = silent(only(0, {.transfers = 2, .faults = 2}));
    refused.refusals = true;
    add("two transfers refused that nobody is to blame for", refused, true);
    refused.policy = Policy::kStriping;
    refused.breaks = true;
    add("a silent break, and a transfer refused, striped", refused);
    // One break, and all that may come of it.
    add("a break, however it shows", only(kBreaks, {.transfers = 2}), true);
    add("any fault, striped", {.policy = Policy::kStriping, .transfers = 2}, true);
    FlowSetup two = silent(only(kBreaks, {.transfers = 4, .faults = 2}));
    add("two silent breaks", two, true);
    two.completions = true;
    add("two breaks, completions fail", two);
    two.completions = false;
    two.resets = true;
    two.transfers = 3;
    add("two breaks, connections are reset", two, true);
    two.resets = false;
    two.events = true;
    two.transfers = 2;
    add("two breaks, ports report", two);
    two.events = false;
    two.late = true;
    add("two breaks, all may come late", two);
    two.late = false;
    two.heals = true;
    two.transfers = two.slots = 1;
    add("two breaks that heal", two);
    add("three paths, two silent breaks", silent(only(kBreaks, {.paths = 3, .transfers = 2, .faults = 2})));
    // Large transfers behind small ones, which the link refuses on the path that the sender would take.
    FlowSetup by_bytes{.policy = Policy::kStriping, .transfers = 3, .slots = 3, .by_bytes = true};
    add("any fault, striped by bytes", by_bytes, true);
    by_bytes.transfers = by_bytes.slots = 4;
    by_bytes.faults = 2;
    add("two silent breaks, striped by bytes", silent(only(kBreaks, by_bytes)));
    return cases;
  }();
  return kCases;
}

// For a person with forty minutes and some gigabytes: up to 4 transfers, 3 paths, everything together.
inline const std::vector<FlowCase>& large_flow_cases() {
  static const std::vector<FlowCase> kCases = [] {
    std::vector<FlowCase> cases;
    const auto add = [&](const char* name, FlowSetup setup) { cases.push_back({name, setup, false}); };
    add("a break, however it shows, 4 transfers", only(kBreaks, {.transfers = 4}));
    add("any fault, striped, 4 transfers", {.policy = Policy::kStriping, .transfers = 4});
    add("a break, however it shows, 3 paths", only(kBreaks, {.paths = 3, .transfers = 3}));
    for (const bool striped : {false, true})
      for (const uint32_t paths : {2u, 3u}) {
        FlowSetup setup = silent({.paths = paths, .transfers = 4, .faults = 2});
        if (striped) setup.policy = Policy::kStriping;
        add(striped ? "any two faults, silent, striped" : "any two faults, silent", setup);
        setup.completions = setup.resets = true;
        add(striped ? "completions and resets, striped" : "completions and resets", setup);
        if (!striped) continue;
        setup.by_bytes = true;
        setup.slots = 4;
        setup.completions = setup.resets = false;
        add("any two faults, silent, striped by bytes", setup);
      }
    const auto add_sizes = [&](const char* name, FlowSetup setup, bool FlowSetup::* shows = nullptr) {
      for (const auto& [paths, transfers] : {std::pair(2u, 3u), {2u, 4u}, {3u, 2u}, {3u, 3u}, {3u, 4u}}) {
        setup.paths = paths;
        setup.transfers = transfers;
        if (shows != nullptr) setup.*shows = true;
        add(name, setup);
      }
    };
    add_sizes("two messages lost, doubled, overtaken, or slow", only(kLosses | kEarlyTimers, {.faults = 2}));
    const FlowSetup two = silent(only(kBreaks, {.faults = 2}));
    add_sizes("two breaks, ports report", two, &FlowSetup::events);
    add_sizes("two breaks, all may come late", two, &FlowSetup::late);
    add_sizes("two breaks that heal", two, &FlowSetup::heals);
    add_sizes("a break and a loss, all may come late", silent(only(kBreaks | kLosses, {.faults = 2})),
              &FlowSetup::late);
    for (const auto& [paths, transfers] : {std::pair(2u, 2u), {2u, 3u}, {2u, 4u}, {3u, 2u}, {3u, 3u}}) {
      FlowSetup setup = only(kBreaks, {.paths = paths, .transfers = transfers, .faults = 2});
      setup.heals = false;
      add("two breaks, however they show, none heals", setup);
    }
    for (const auto& [paths, transfers, faults] :
         {std::tuple(2u, 4u, 1u), {3u, 4u, 1u}, {2u, 2u, 2u}, {2u, 4u, 2u}, {3u, 4u, 2u}}) {
      FlowSetup setup = silent(only(kBreaks, {.paths = paths, .transfers = transfers, .faults = faults}));
      setup.dying = true;
      add(faults == 1 ? "a silent break, and an end dies" : "two silent breaks, and an end dies", setup);
    }
    for (const uint32_t paths : {2u, 3u}) {
      FlowSetup setup = silent(only(kBreaks, {.paths = paths, .transfers = 4, .faults = 2}));
      setup.refusals = true;
      add("a silent break, and a transfer refused", setup);
      setup.policy = Policy::kStriping;
      add("a silent break, and a transfer refused, striped", setup);
    }
    for (const uint32_t transfers : {2u, 4u}) {
      FlowSetup setup = only(kBreaks, {.transfers = transfers});
      setup.dying = true;
      add("a break, however it shows, and an end dies", setup);
    }
    for (const uint32_t transfers : {2u, 3u})
      add("any two faults, however they show", {.transfers = transfers, .faults = 2});
    return cases;
  }();
  return kCases;
}

}  // namespace starling::link::sim
