// Explores flows, the small ones of the tests or large ones, and says how many states there were, in how many
// seconds of a processor; or walks by seeds: explore_program [large] [STATES_AT_MOST [PART_OF_A_NAME]] |
// explore_program seeds [HOW_MANY] [FIRST].
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "link/cases.h"
#include "link/sim/explore.h"
#include "link/sim/walk.h"

namespace {

using namespace starling::link;

double seconds_since(std::clock_t start) { return double(std::clock() - start) / CLOCKS_PER_SEC; }

int explore_all(const std::vector<sim::FlowCase>& flows, uint64_t limit, const char* part) {
  std::printf(
      "| flow | paths | transfers | faults | states | transitions | seconds | |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- |\n");
  int status = 0;
  for (const sim::FlowCase& flow : flows) {
    if (std::strstr(flow.name, part) == nullptr) continue;
    const std::clock_t start = std::clock();
    const sim::Explored explored = sim::explore(flow.setup, shipped_flow_core(), limit);
    std::printf("| %s | %u | %u | %u | %llu | %llu | %.1f | %s |\n", flow.name, flow.setup.paths,
                flow.setup.transfers, flow.setup.faults, static_cast<unsigned long long>(explored.states),
                static_cast<unsigned long long>(explored.transitions), seconds_since(start),
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

int walk_all(uint64_t count, uint64_t first) {
  const std::clock_t start = std::clock();
  uint64_t failovers = 0, steps = 0;
  int status = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const sim::Walked walked = sim::walk(seed, shipped_flow_core());
    failovers += walked.epochs;
    steps += walked.steps;
    if (walked.failure.empty()) continue;
    std::fprintf(stderr, "%s\n", walked.failure.c_str());
    status = 1;
  }
  std::printf("%llu seeds, %llu steps, %llu failovers and failbacks, %.1f s\n",
              static_cast<unsigned long long>(count), static_cast<unsigned long long>(steps),
              static_cast<unsigned long long>(failovers), seconds_since(start));
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int index, uint64_t otherwise) {
    return argc > index ? std::strtoull(argv[index], nullptr, 10) : otherwise;
  };
  const auto part = [&](int index) { return argc > index ? argv[index] : ""; };
  constexpr uint64_t kStates = 100'000'000;
  if (argc > 1 && std::strcmp(argv[1], "seeds") == 0) return walk_all(number(2, 100'000), number(3, 1));
  if (argc > 1 && std::strcmp(argv[1], "large") == 0)
    return explore_all(sim::large_flow_cases(), number(2, kStates), part(3));
  return explore_all(sim::flow_cases(), number(1, kStates), part(2));
}
