// Looks for a planted bug: seeds one after the other, in a process of its own, as some bugs crash it.
#pragma once
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "machine/sim/campaign.h"
#include "sim/mutants.h"

namespace starling::sim {

struct Found {
  bool found = false;
  double seconds = 0;
  uint64_t seeds = 0;
  std::string how;  // campaign and seed, and what was seen
};

namespace hunting {

inline std::string look(const Core& core, double seconds) {
  Simulation simulation(core);
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t seed = 1;; ++seed) {
    const Campaign campaign = Campaign(seed % 4);
    Case drawn = draw_case(campaign, seed, simulation.plans());
    drawn.options.progress_bound_ns = 20'000'000;
    drawn.options.step_bound = 2'000'000;
    const Report report = simulation.run(drawn.program, drawn.options, drawn.seed);
    if (!report.ok())
      return std::to_string(seed) + " " + campaign_name(campaign) + " seed " + std::to_string(seed) + ": " +
             report.failure;
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > seconds)
      return std::to_string(seed);
  }
}

}  // namespace hunting

inline Found hunt(const Core& core, double seconds) {
  const auto start = std::chrono::steady_clock::now();
  int ends[2];
  if (pipe(ends) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    const std::string text = hunting::look(core, seconds);
    const bool written = write(ends[1], text.data(), text.size()) == ssize_t(text.size());
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char buffer[512];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) text.append(buffer, size_t(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  Found found;
  found.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  found.seeds = text.empty() ? 0 : std::strtoull(text.c_str(), nullptr, 10);
  const size_t space = text.find(' ');
  if (WIFSIGNALED(status)) {
    found.found = true;
    found.how = "the process crashed, signal " + std::to_string(WTERMSIG(status));
  } else if (space != std::string::npos) {
    found.found = true;
    found.how = text.substr(space + 1);
  }
  return found;
}

}  // namespace starling::sim
