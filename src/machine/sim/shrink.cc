// Makes a failing case small: fewer steps, lanes and iterations, and a calmer machine. A change of the case
// changes every choice that the seed makes, so each candidate is tried under a few seeds.
#include <algorithm>
#include <functional>
#include <utility>

#include "machine/sim/campaign.h"

namespace starling::sim {
namespace {

constexpr uint32_t kSeedsPerCandidate = 12;

class Shrinker {
 public:
  Shrinker(Simulation& simulation, const Case& failing, uint32_t run_limit)
      : simulation_(simulation), best_(failing), limit_(run_limit) {
    report_ = run(best_);
  }

  Shrunk result() && { return {std::move(best_), std::move(report_), runs_}; }

  void shrink() {
    for (bool smaller = true; smaller && runs_ < limit_;) {
      smaller = false;
      smaller |= drop_lanes();
      smaller |= drop_steps();
      smaller |= drop_replays();
      smaller |= calm();
    }
  }

 private:
  Report run(const Case& candidate) {
    ++runs_;
    return simulation_.run(candidate.program, candidate.options, candidate.seed);
  }

  // Takes the candidate if it fails under one of a few seeds.
  bool accept(Case candidate) {
    for (uint32_t k = 0; k < kSeedsPerCandidate && runs_ < limit_; ++k) {
      Report report = run(candidate);
      if (!report.ok()) {
        best_ = std::move(candidate);
        report_ = std::move(report);
        return true;
      }
      candidate.seed = hash_combine(best_.seed, k);
    }
    return false;
  }

  // Every rank forgets the lane: what is left is still a program in which nobody waits in vain.
  bool drop_lanes() {
    bool any = false;
    for (uint32_t lane = 0; lane < best_.program.lanes.size();) {
      Case candidate = best_;
      for (auto& steps : candidate.program.steps) {
        std::erase_if(steps, [&](const Step& s) { return s.names_lane() && s.lane == lane; });
        for (Step& s : steps)
          if (s.names_lane() && s.lane > lane) --s.lane;
      }
      forget_in_graphs(candidate.program, lane);
      candidate.program.lanes.erase(candidate.program.lanes.begin() + lane);
      if (!candidate.program.lanes.empty() && accept(std::move(candidate)))
        any = true;
      else
        ++lane;
    }
    return any;
  }

  static void forget_in_graphs(Program& program, uint32_t lane) {
    const auto forget = [lane](std::vector<GraphNode>& nodes) {
      std::erase_if(nodes, [lane](const GraphNode& node) { return node.lane == lane; });
      for (GraphNode& node : nodes)
        if (node.lane > lane) --node.lane;
    };
    for (auto& graphs : program.graphs)
      for (Graph& graph : graphs) {
        for (auto& branch : graph.branches) forget(branch);
        forget(graph.tail);
      }
  }

  // The last replay of a graph, on all its ranks at once.
  bool drop_replays() {
    bool any = false;
    const size_t graphs = best_.program.graphs.empty() ? 0 : best_.program.graphs[0].size();
    for (uint32_t g = 0; g < graphs; ++g)
      for (bool again = true; again;) {
        Case candidate = best_;
        bool dropped = false;
        for (auto& steps : candidate.program.steps) {
          const auto last = std::find_if(steps.rbegin(), steps.rend(), [g](const Step& s) {
            return s.kind == StepKind::kReplay && s.lane == g;
          });
          if (last == steps.rend()) continue;
          steps.erase(std::next(last).base());
          dropped = true;
        }
        again = dropped && accept(std::move(candidate));
        any |= again;
      }
    return any;
  }

  // The last submission of a lane, on all its ranks at once; and synchronizations, waits and pauses.
  bool drop_steps() {
    bool any = false;
    for (uint32_t lane = 0; lane < best_.program.lanes.size(); ++lane)
      for (bool again = true; again;) {
        Case candidate = best_;
        for (auto& steps : candidate.program.steps) {
          const auto last = std::find_if(steps.rbegin(), steps.rend(),
                                         [&](const Step& s) { return s.submits() && s.lane == lane; });
          if (last != steps.rend()) steps.erase(std::next(last).base());
        }
        again = candidate.program.depth(lane) < best_.program.depth(lane) && accept(std::move(candidate));
        any |= again;
      }
    for (StepKind kind : {StepKind::kSynchronize, StepKind::kWait, StepKind::kPause, StepKind::kCompute,
                          StepKind::kStreamWait, StepKind::kCopyBack, StepKind::kLoadKernels})
      for (uint32_t r = 0; r < best_.program.rank_count; ++r) {
        // Without its waits a program with streams might use buffers that kernels still read.
        if (kind == StepKind::kWait && best_.program.streams > 0) continue;
        Case candidate = best_;
        if (std::erase_if(candidate.program.steps[r], [&](const Step& s) { return s.kind == kind; }) > 0)
          any |= accept(std::move(candidate));
      }
    return any;
  }

  // Each injection back to a calm machine's value.
  bool calm() {
    static const Options kCalm{};
    bool any = false;
    auto reset = [&](auto member) {
      Case candidate = best_;
      if (candidate.options.*member == kCalm.*member) return;
      candidate.options.*member = kCalm.*member;
      any |= accept(std::move(candidate));
    };
    for (auto member : {&Options::threads,
                        &Options::late_store_chance,
                        &Options::late_data_chance,
                        &Options::stall_chance,
                        &Options::slow_chance,
                        &Options::forced_park_chance,
                        &Options::forced_quit_chance,
                        &Options::drain_chance,
                        &Options::late_rank_chance,
                        &Options::callback_submits,
                        &Options::hosts,
                        &Options::path_break_chance,
                        &Options::nap_chance,
                        &Options::fence_chance,
                        &Options::priority_order,
                        &Options::submission_capacity,
                        &Options::completion_capacity,
                        &Options::completion_kind,
                        &Options::slot_bytes,
                        &Options::pool_slots,
                        &Options::plan_room,
                        &Options::fetch_batch,
                        &Options::success_factor,
                        &Options::position_shift,
                        &Options::mean_slice,
                        &Options::op_ns})
      reset(member);
    for (auto member :
         {&Options::connect_delay_ns, &Options::carry_ns, &Options::open_delay_ns, &Options::first_sequence,
          &Options::first_message, &Options::first_position, &Options::launch_delay_ns, &Options::restart_ns,
          &Options::missing_ns, &Options::residency_limit, &Options::quit_period, &Options::initial_budget,
          &Options::minimum_budget, &Options::maximum_budget})
      reset(member);
    return small_calls() || any;
  }

  bool small_calls() {
    for (size_t k = 0; k < best_.program.lanes.size(); ++k) {
      for (size_t n = 0; n < best_.program.lanes[k].calls.size(); ++n) {
        if (best_.program.lanes[k].calls[n].count <= 16) continue;
        Case candidate = best_;
        candidate.program.lanes[k].calls[n].count = 16;
        if (accept(std::move(candidate))) return true;
      }
      if (best_.program.lanes[k].calls.size() == 1 || best_.program.lanes[k].captured) continue;
      for (size_t n = 0; n < best_.program.lanes[k].calls.size(); ++n) {
        Case candidate = best_;
        candidate.program.lanes[k].calls = {best_.program.lanes[k].calls[n]};
        if (accept(std::move(candidate))) return true;
      }
    }
    return false;
  }

  Simulation& simulation_;
  Case best_;
  Report report_;
  uint32_t limit_;
  uint32_t runs_ = 0;
};

}  // namespace

Shrunk shrink(Simulation& simulation, const Case& failing, uint32_t run_limit) {
  Shrinker shrinker(simulation, failing, run_limit);
  shrinker.shrink();
  return std::move(shrinker).result();
}

}  // namespace starling::sim
