// The study of preemption: parks, quits and completion time in the simulator against the budget, the number
// of ranks and the disorder. Prints CSV; `python -m starling.sim.preemption` draws it.
//
//   preemption_bench budget|ranks|disorder [SEEDS]
//
// Ranks come in groups of eight, each group with eight all-reduces of its own and one that it shares with the
// next group, so that a delay spreads. Idle blocks look all the time, as on a GPU; happens-before is off.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "machine/sim/simulation.h"

using namespace starling;
using namespace starling::sim;

namespace {

struct Point {
  uint32_t ranks = 64;
  uint64_t budget_ns = 20'000;
  uint32_t disorder = kAlways;  // in 65536
  bool adaptive = false;  // DFCCL's policy: front first, raised by success; else one budget for all
};

Program grouped(const Point& point, uint64_t seed, const Options& options, PlanCache& plans) {
  constexpr uint32_t kGroup = 8, kLanes = 8;
  Random random(seed, 9);
  Program program;
  program.name = "grouped";
  program.rank_count = point.ranks;
  program.steps.resize(point.ranks);
  const uint32_t groups = point.ranks / kGroup;
  std::vector<std::vector<uint32_t>> lanes_of(point.ranks);
  auto add_lane = [&](uint32_t first_rank, uint64_t count) {
    LaneSpec lane;
    for (uint32_t r = 0; r < kGroup; ++r) {
      lane.ranks.push_back((first_rank + r) % point.ranks);
      lanes_of[lane.ranks.back()].push_back(uint32_t(program.lanes.size()));
    }
    CallSpec& call = lane.calls.emplace_back();
    call.count = count;
    call.plan = plans.get("ring", {Collective::kAllReduce, kGroup, 0, options.blocks, false});
    program.lanes.push_back(std::move(lane));
  };
  for (uint32_t g = 0; g < groups; ++g) {
    for (uint32_t k = 0; k < kLanes; ++k) add_lane(g * kGroup, 64u << k);
    if (groups > 1) add_lane(g * kGroup + kGroup / 2, 256);
  }
  for (uint32_t r = 0; r < point.ranks; ++r) {
    std::vector<uint32_t>& order = lanes_of[r];
    std::sort(order.begin(), order.end());
    for (size_t k = order.size(); k > 1; --k)
      if (random.chance(point.disorder)) std::swap(order[k - 1], order[random.below(uint32_t(k))]);
    for (uint32_t lane : order) program.steps[r].push_back({StepKind::kSubmit, lane, 0});
  }
  return program;
}

void measure(Simulation& simulation, const Point& point, uint64_t seeds) {
  Options options;
  options.ordering_checks = 0;
  options.idle_sleeps = 0;
  options.mean_slice = 4;
  options.op_ns = 100;
  options.initial_budget = options.minimum_budget = options.maximum_budget = point.budget_ns | 1;
  options.success_factor = 1;
  options.position_shift = 0;
  options.in_turn = 1;
  if (point.adaptive) {
    options.minimum_budget = std::max<uint64_t>(point.budget_ns / 40, 1);
    options.maximum_budget = point.budget_ns * 5;
    options.success_factor = 20;
    options.position_shift = 2;
  }
  options.quit_period = 300'002;
  options.residency_limit = 50'000'002;
  options.progress_bound_ns = 2'000'000'000;
  Report total;
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const Program program = grouped(point, seed, options, simulation.plans());
    total.add(simulation.run(program, options, seed));
  }
  if (!total.ok()) std::fprintf(stderr, "%s\n", total.failure.c_str());
  const double wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double runs = double(seeds), rank_runs = runs * point.ranks;
  std::printf("%u,%llu,%.4f,%s,%llu,%.2f,%.3f,%.2f,%.1f,%d\n", point.ranks,
              static_cast<unsigned long long>(point.budget_ns), point.disorder / double(kAlways),
              point.adaptive ? "adaptive" : "fixed", static_cast<unsigned long long>(seeds),
              double(total.parks) / rank_runs, double(total.quits) / rank_runs,
              double(total.virtual_ns) / runs * 1e-3, wall_s, total.ok());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "budget";
  const uint64_t seeds = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 5;
  Simulation simulation;
  std::printf(
      "ranks,budget_ns,disorder,policy,seeds,parks_per_rank,quits_per_rank,completion_us,wall_s,ok\n");
  if (std::strcmp(what, "budget") == 0) {
    for (bool adaptive : {false, true})
      for (uint64_t budget = 3; budget <= 3'276'800; budget *= 2)
        measure(simulation, {.budget_ns = budget, .adaptive = adaptive}, seeds);
  } else if (std::strcmp(what, "ranks") == 0) {
    for (uint32_t ranks : {8u, 16u, 32u, 64u, 128u, 256u, 512u, 1024u, 2048u, 3072u})
      measure(simulation, {.ranks = ranks, .adaptive = true}, std::max<uint64_t>(seeds * 64 / ranks, 1));
  } else if (std::strcmp(what, "disorder") == 0) {
    for (uint32_t percent : {0u, 1u, 2u, 5u, 10u, 20u, 50u, 100u})
      measure(simulation, {.disorder = kAlways * percent / 100, .adaptive = true}, seeds);
  } else {
    std::fprintf(stderr, "usage: preemption_bench budget|ranks|disorder [SEEDS]\n");
    return 2;
  }
}
