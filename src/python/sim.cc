// starling._core.sim: the simulator's campaigns for `starling soak`.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "base/error.h"
#include "machine/sim/campaign.h"
#include "machine/sim/plan_program.h"
#include "machine/sim/soak.h"
#include "plan/text.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace starling::sim {
namespace {

Campaign campaign_of(const std::string& name) {
  if (const auto campaign = campaign_named(name)) return *campaign;
  std::string known;
  for (uint32_t k = 0; k < kCampaignCount; ++k)
    known += std::string(k ? ", " : "") + campaign_name(Campaign(k));
  throw Error(Code::invalid_argument, "campaign '" + name + "' does not exist", "use one of " + known);
}

// A failing or passing seed, replayed with its trace.
struct Replay {
  Report report;
  std::string story;
  std::string shrunk_story;  // empty if it passes
  std::vector<Simulation::TracedEvent> events;
};

Replay replay(const std::string& campaign, uint64_t seed, bool with_shrinking) {
  Simulation simulation;
  Case drawn = draw_case(campaign_of(campaign), seed, simulation.plans());
  Replay result;
  drawn.options.trace_capacity = 1 << 16;
  result.report = simulation.run(drawn.program, drawn.options, seed);
  result.events = simulation.trace();
  drawn.options.trace_capacity = 0;
  result.story = story(simulation, drawn);
  if (!result.report.ok() && with_shrinking)
    result.shrunk_story = story(simulation, shrink(simulation, drawn).smallest);
  return result;
}

// For each plan its text, and for each rank and group of its output the (rank, group) pairs that are summed
// there.
using Origins = std::vector<std::vector<std::pair<uint32_t, uint32_t>>>;

class PlanRuns {
 public:
  PlanRuns(const std::vector<std::string>& texts, const std::vector<Origins>& origins) {
    for (size_t k = 0; k < texts.size(); ++k) {
      GivenPlan& given = plans_.emplace_back();
      given.plan = std::make_shared<const Plan>(plan_from_text(texts[k]));
      for (const auto& sources : origins.at(k)) {
        auto& list = given.origins.emplace_back();
        for (const auto& [rank, group] : sources) list.push_back({rank, group});
      }
    }
  }
  Report run(uint64_t largest_count, uint32_t rounds, uint64_t seed) {
    return run_plans(simulation_, plans_, largest_count, rounds, seed);
  }

 private:
  Simulation simulation_;
  std::vector<GivenPlan> plans_;
};

}  // namespace
}  // namespace starling::sim

void bind_sim(nb::module_& m) {
  using namespace starling::sim;
  nb::module_ sim = m.def_submodule("sim", "The simulator: the shipped scheduler under every schedule.");
  nb::class_<Report>(sim, "Report")
      .def_ro("failure", &Report::failure)
      .def_ro("virtual_ns", &Report::virtual_ns)
      .def_ro("steps", &Report::slices)
      .def_ro("operations", &Report::operations)
      .def_ro("instructions", &Report::instructions)
      .def_ro("parks", &Report::parks)
      .def_ro("quits", &Report::quits)
      .def_ro("launches", &Report::launches)
      .def_ro("synchronizations", &Report::synchronizations);
  nb::class_<FailedSeed>(sim, "FailedSeed")
      .def_ro("seed", &FailedSeed::seed)
      .def_ro("failure", &FailedSeed::failure);
  nb::class_<Soak>(sim, "Soak")
      .def(
          "__init__",
          [](Soak* self, const std::string& campaign, uint64_t first_seed, uint32_t threads) {
            new (self) Soak(campaign_of(campaign), first_seed, threads);
          },
          "campaign"_a, "first_seed"_a, "threads"_a)
      .def("run", &Soak::run, "seconds"_a, "seed_limit"_a, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("seeds", &Soak::seeds)
      .def_prop_ro("total", [](const Soak& soak) { return soak.total(); })
      .def_prop_ro("failures", [](const Soak& soak) { return soak.failures(); });
  nb::class_<Simulation::TracedEvent>(sim, "Event")
      .def_ro("rank", &Simulation::TracedEvent::rank)
      .def_ro("block", &Simulation::TracedEvent::block)
      .def_prop_ro("time_ns", [](const Simulation::TracedEvent& e) { return e.record.ticks; })
      .def_prop_ro("kind", [](const Simulation::TracedEvent& e) { return int(e.record.event); })
      .def_prop_ro("lane", [](const Simulation::TracedEvent& e) { return e.record.lane; })
      .def_prop_ro("sequence", [](const Simulation::TracedEvent& e) { return e.record.sequence; })
      .def_prop_ro("detail", [](const Simulation::TracedEvent& e) { return e.record.detail; });
  nb::class_<Replay>(sim, "Replay")
      .def_ro("report", &Replay::report)
      .def_ro("story", &Replay::story)
      .def_ro("shrunk_story", &Replay::shrunk_story)
      .def_ro("events", &Replay::events);
  nb::class_<PlanRuns>(sim, "PlanRuns")
      .def(nb::init<const std::vector<std::string>&, const std::vector<Origins>&>(), "texts"_a, "origins"_a)
      .def("run", &PlanRuns::run, "largest_count"_a, "rounds"_a, "seed"_a,
           nb::call_guard<nb::gil_scoped_release>());
  sim.def("replay", &replay, "campaign"_a, "seed"_a, "with_shrinking"_a = true,
          nb::call_guard<nb::gil_scoped_release>());
  std::vector<std::string> names;
  for (uint32_t k = 0; k < kCampaignCount; ++k) names.emplace_back(campaign_name(Campaign(k)));
  sim.attr("CAMPAIGNS") = nb::cast(names);
}
