#include "machine/sim/replay.h"

#include <algorithm>

#include "machine/sim/replay_rank.h"

namespace starling::sim {

Replay::Replay(const Core& core) : core_(&core) {
  world_.memory.describe = [](const void*) { return std::string("a word of the replay"); };
}

Replay::~Replay() = default;

ReplayReport Replay::run(const Program& program, const ReplaySettings& settings, uint64_t seed) {
  cluster_ = ReplayCluster{&world_, &settings, &program, core_, &ranks_, {}, {}, {}, {}, {}};
  world_.scheduler.reset(settings.machine, seed, &Memory::commit_due, &world_.memory);
  world_.memory.reset(world_.scheduler, settings.machine);
  world_.shadow.reset(world_.scheduler, world_.memory, settings.machine);
  build();
  world_.scheduler.run();
  ReplayReport report = collect();
  report.total.failure = world_.scheduler.failure();
  if (report.total.ok()) check_end(report.total);
  if (!report.total.ok())
    for (const ReplayRank& rank : ranks_) report.total.state += rank.state() + "\n";
  return report;
}

void Replay::build() {
  const Program& program = *cluster_.program;
  const size_t lanes = program.lanes.size();
  cluster_.lanes.resize(lanes);
  cluster_.expected.resize(lanes);
  cluster_.parks.assign(lanes, 0);
  cluster_.mine.resize(program.rank_count);
  for (uint32_t k = 0; k < lanes; ++k) {
    cluster_.lanes[k].assign(program.lanes[k].ranks.size(), nullptr);
    for (uint32_t r : program.lanes[k].ranks) cluster_.mine[r].push_back(k);
  }
  cluster_.depth.assign(lanes, 1);
  for (const auto& steps : program.steps) {
    std::vector<uint32_t> launched(lanes, 0);
    for (const Step& step : steps)
      if (step.kind == StepKind::kSubmit)
        cluster_.depth[step.lane] = std::max(cluster_.depth[step.lane], ++launched[step.lane]);
  }
  ranks_.clear();
  ranks_.resize(program.rank_count);
  for (uint32_t r = 0; r < program.rank_count; ++r) ranks_[r].build(cluster_, r);
  for (ReplayRank& rank : ranks_) rank.add_fibers();
  world_.memory.begin();
  for (ReplayRank& rank : ranks_) rank.begin();
}

void Replay::check_end(Report& report) const {
  if (!world_.scheduler.all_ended())
    report.failure = "deadlock: nothing can happen any more, and not all have ended";
  for (size_t r = 0; r < ranks_.size() && report.ok(); ++r) report.failure = ranks_[r].leftovers();
}

ReplayReport Replay::collect() const {
  ReplayReport report;
  report.total.virtual_ns = world_.scheduler.now();
  report.total.slices = world_.scheduler.slices();
  report.total.operations = cluster_.completed;
  report.parks = cluster_.parks;
  for (const ReplayRank& rank : ranks_) rank.add_to(report);
  return report;
}

LaneSpec recorded_lane(std::vector<uint32_t> ranks, const Options& machine, PlanCache& plans) {
  LaneSpec lane;
  CallSpec& call = lane.calls.emplace_back();
  call.plan = plans.get("ring", {Collective::kAllReduce, uint32_t(ranks.size()), 0, machine.blocks, false});
  call.count = 4;
  lane.ranks = std::move(ranks);
  return lane;
}

}  // namespace starling::sim
