#include "study/replay.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace starling::study {
namespace {

void check_lanes(const Program& program, const std::vector<int>& lane_of) {
  const auto refuse = [](const std::string& happened) {
    throw Error(
        Code::invalid_argument, happened,
        "number lanes from 0 on; a lane has one group, which launches its collectives in ascending order");
  };
  if (lane_of.size() != static_cast<std::size_t>(program.collectives()))
    refuse(std::to_string(lane_of.size()) + " lanes are named for " + std::to_string(program.collectives()) +
           " collectives");
  std::vector<int> first(lane_of.size(), -1);
  for (int c = 0; c < program.collectives(); ++c) {
    if (lane_of[c] < 0 || lane_of[c] >= program.collectives())
      refuse("the lane of collective " + std::to_string(c) + " is " + std::to_string(lane_of[c]));
    int& of_lane = first[lane_of[c]];
    if (of_lane < 0) of_lane = c;
    if (program.members[of_lane] != program.members[c])
      refuse("collectives " + std::to_string(of_lane) + " and " + std::to_string(c) +
             " are of one lane and of different GPUs");
  }
  for (const std::vector<int>& events : program.events) {
    std::vector<int> last(lane_of.size(), -1);
    for (int event : events) {
      if (event == kSynchronize) continue;
      if (event < std::exchange(last[lane_of[event]], event))
        refuse("collective " + std::to_string(event) + " is launched after a later one of its lane");
    }
  }
}

sim::ReplaySettings settings(const ReplayChoice& choice) {
  sim::ReplaySettings settings;
  if (choice.wild) settings.machine = sim::random_options(choice.seed);
  settings.machine.ordering_checks = choice.checks;
  settings.machine.unbounded = !choice.yielding;
  settings.machine.step_bound = std::uint64_t(20'000'000'000);  // time without progress is what ends a replay
  settings.machine.slot_bytes = 256;
  settings.pace_ns = choice.pace_ns;
  return settings;
}

sim::Program translate(const Program& program, const std::vector<int>& lane_of, const sim::Options& machine,
                       PlanCache& plans) {
  sim::Program translated;
  translated.name = "replay";
  translated.rank_count = static_cast<std::uint32_t>(program.gpus());
  translated.lanes.resize(static_cast<std::size_t>(*std::max_element(lane_of.begin(), lane_of.end()) + 1));
  for (int c = 0; c < program.collectives(); ++c) {
    sim::LaneSpec& lane = translated.lanes[lane_of[c]];
    if (!lane.calls.empty()) continue;
    const std::vector<int>& members = program.members[c];
    lane = sim::recorded_lane({members.begin(), members.end()}, machine, plans);
  }
  for (const sim::LaneSpec& lane : translated.lanes)
    if (lane.calls.empty())
      throw Error(Code::invalid_argument, "a lane has no collective", "number lanes without gaps");
  for (const std::vector<int>& events : program.events) {
    std::vector<sim::Step>& steps = translated.steps.emplace_back();
    for (int event : events) {
      if (event == kSynchronize)
        steps.push_back({sim::StepKind::kSynchronize, 0, 0});
      else
        steps.push_back({sim::StepKind::kSubmit, static_cast<std::uint32_t>(lane_of[event]), 0});
    }
  }
  return translated;
}

bool is_hang(std::string_view failure) {
  return failure.starts_with("deadlock") || failure.starts_with("no progress") ||
         failure.starts_with("too many steps");
}

}  // namespace

Replayed Replayer::run(const Program& program, const std::vector<int>& lane_of, const ReplayChoice& choice) {
  check(program);
  if (program.collectives() == 0)
    throw Error(Code::invalid_argument, "there is nothing to replay", "give a program with collectives");
  std::vector<int> lanes = lane_of;
  if (lanes.empty())
    for (int c = 0; c < program.collectives(); ++c) lanes.push_back(c);
  check_lanes(program, lanes);
  const sim::ReplaySettings machine = settings(choice);
  const sim::Program translated = translate(program, lanes, machine.machine, replay_.plans());
  sim::ReplayReport report = replay_.run(translated, machine, choice.seed);
  Replayed replayed;
  replayed.failure = report.total.failure;
  replayed.hangs = is_hang(report.total.failure);
  replayed.state = report.total.state;
  replayed.launches = static_cast<std::int64_t>(report.total.operations);
  replayed.synchronizations = static_cast<std::int64_t>(report.total.synchronizations);
  replayed.parks = std::move(report.parks);
  replayed.stuck_quits = static_cast<std::int64_t>(report.stuck_quits);
  replayed.idle_quits = static_cast<std::int64_t>(report.idle_quits);
  replayed.limited_quits = static_cast<std::int64_t>(report.limited_quits);
  replayed.daemon_launches = static_cast<std::int64_t>(report.total.launches);
  replayed.virtual_us = static_cast<double>(report.total.virtual_ns) / 1000;
  replayed.steps = static_cast<std::int64_t>(report.total.slices);
  return replayed;
}

}  // namespace starling::study
