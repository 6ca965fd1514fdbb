// Explores flows, the small ones of the tests or large ones, and says how many states there were:
// explore_program [large] [STATES_AT_MOST].
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "link/cases.h"
#include "link/sim/explore.h"

int main(int argc, char** argv) {
  using namespace starling::link;
  const bool large = argc > 1 && std::strcmp(argv[1], "large") == 0;
  const uint64_t limit = argc > 1 + large ? std::strtoull(argv[1 + large], nullptr, 10) : 100'000'000;
  std::printf(
      "| flow | paths | transfers | faults | states | transitions | seconds | |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- |\n");
  int status = 0;
  for (const sim::FlowCase& flow : large ? sim::large_flow_cases() : sim::flow_cases()) {
    const auto start = std::chrono::steady_clock::now();
    const sim::Explored explored = sim::explore(flow.setup, shipped_flow_core(), limit);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("| %s | %u | %u | %u | %llu | %llu | %.1f | %s |\n", flow.name, flow.setup.paths,
                flow.setup.transfers, flow.setup.faults, static_cast<unsigned long long>(explored.states),
                static_cast<unsigned long long>(explored.transitions), seconds,
                !explored.failure.empty() ? "wrong"
                : explored.exhausted      ? "all"
                                          : "not all");
    std::fflush(stdout);
    if (explored.failure.empty()) continue;
    std::fprintf(stderr, "%s\n", explored.failure.c_str());
    status = 1;
  }
  return status;
}
