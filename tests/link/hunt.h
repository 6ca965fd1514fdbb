// Looks for a planted bug of failover: one small flow after the other, in a process of its own.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

#include "link/cases.h"
#include "link/mutants.h"
#include "link/sim/explore.h"
#include "support/in_child.h"

namespace starling::link {

struct Found {
  bool found = false;
  double seconds = 0;
  std::string how;  // which flow, and what was seen
};

inline Found hunt(const FlowCore& core) {
  const auto start = std::chrono::steady_clock::now();
  const Outcome outcome = in_child([&]() -> std::string {
    alarm(500);  // a bug may loop for ever inside one event
    for (const sim::FlowCase& flow : sim::flow_cases()) {
      const sim::Explored explored = sim::explore(flow.setup, core, 2'000'000);
      if (explored.failure.empty() && explored.exhausted) continue;
      const std::string what = explored.failure.empty()
                                   ? "states without end"
                                   : explored.failure.substr(0, explored.failure.find('\n'));
      return std::string(flow.name) + ": " + what;
    }
    return {};
  });
  Found found;
  found.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  found.found = outcome.signal != 0 || !outcome.text.empty();
  found.how =
      outcome.signal != 0 ? "the process crashed, signal " + std::to_string(outcome.signal) : outcome.text;
  return found;
}

}  // namespace starling::link
