#include "machine/sim/copy_program.h"

#include <algorithm>

#include "machine/sim/stream_program.h"
#include "plan/generate.h"

namespace starling::sim {
namespace {

constexpr Collective kMoves[] = {Collective::kAllGather, Collective::kAllToAll, Collective::kBroadcast,
                                 Collective::kGather,    Collective::kScatter,  Collective::kSendRecv};

CallSpec copied_call(uint32_t size, Random& random, PlanCache& plans) {
  const Collective kind = size == 2 && random.chance(kAlways / 2)
                              ? Collective::kSendRecv
                              : kMoves[random.below(uint32_t(std::size(kMoves)) - (size > 2))];
  const bool rooted =
      kind == Collective::kBroadcast || kind == Collective::kGather || kind == Collective::kScatter;
  CallSpec call;
  // Nothing of it counts but who has which buffers.
  call.plan = plans.get(algorithms_for(kind)[0], {kind, size, rooted ? random.below(size) : 0, 1, false});
  call.count = 4 * (1 + random.skewed(512));  // parts of several ranks share no cell of the shadow
  if (kind == Collective::kBroadcast && random.chance(kAlways / 2)) call.pieces = 1 + random.below(4);
  return call;
}

// The lane's ranks and its calls in programs stay as they are.
void let_copies_move(LaneSpec& lane, Random& random, PlanCache& plans) {
  const uint32_t size = uint32_t(lane.ranks.size());
  lane.copies = true;
  lane.calls.clear();
  for (uint32_t k = 1 + random.below(3); k > 0; --k) lane.calls.push_back(copied_call(size, random, plans));
}

// More operations of a lane than it has places, before all others.
void let_a_lane_run_far(Program& program, Random& random) {
  std::vector<uint32_t> lanes;
  for (uint32_t k = 0; k < program.lanes.size(); ++k)
    if (program.lanes[k].copies) lanes.push_back(k);
  const uint32_t lane = lanes[random.below(uint32_t(lanes.size()))];
  for (CallSpec& call : program.lanes[lane].calls) call.count = 4 * (1 + random.below(8));
  const uint32_t more = kCopyDepth - 2 + random.below(kCopyDepth);
  for (const uint32_t rank : program.lanes[lane].ranks)
    program.steps[rank].insert(program.steps[rank].begin(), more,
                               {StepKind::kStart, lane, 0, lane % program.streams, 0});
}

// What breaks lanes; whoever waits ends.
void let_it_break(Case& drawn, Random& random) {
  Options& o = drawn.options;
  Program& program = drawn.program;
  o.timeout_ns = 2'000'000;
  switch (random.below(4)) {
    case 0:
      o.dying_rank = int32_t(random.below(program.rank_count));
      o.dying_ns = random.skewed(300'000);
      break;
    case 1:
      o.aborting_rank = int32_t(random.below(program.rank_count));
      o.aborting_ns = random.skewed(200'000);
      break;
    case 2:  // while peers are only late
      o.timeout_ns = 10'000 + random.skewed(200'000);
      break;
    default: {
      auto& steps = program.steps[random.below(program.rank_count)];
      std::vector<Step*> calls;
      for (Step& step : steps)
        if (step.submits() && program.lanes[step.lane].copies) calls.push_back(&step);
      if (!calls.empty()) calls[random.below(uint32_t(calls.size()))]->differs = true;
    }
  }
}

// One rank submits what blocks run and what copies move, in either order, and then waits in the driver for
// the copies, which the other rank comes to when it has the rest: a daemon is needed before.
void let_a_daemon_be_needed(Case& drawn, Random& random, PlanCache& plans) {
  Program& program = drawn.program;
  drawn.options.before_streams_chance = 0;
  program.rank_count = program.streams = 2;
  LaneSpec by_blocks{{0, 1}, {}};
  by_blocks.calls.push_back(
      {plans.get("ring", {Collective::kAllReduce, 2, 0, 1, false}), DataType::kInt32, ReduceOp::kSum, 1, 64});
  LaneSpec by_copies{{0, 1}, {}};
  let_copies_move(by_copies, random, plans);
  program.lanes = {by_blocks, by_copies};
  program.steps.assign(2, {});
  for (uint32_t i = 1 + random.below(3); i > 0; --i) {
    const uint32_t first = random.below(2);
    auto& steps = program.steps[first];
    const Step block{StepKind::kStart, 0, 0, 0};
    const Step copy{StepKind::kStart, 1, 0, 1, 1};
    const bool copy_first = random.chance(kAlways / 2);
    steps.push_back(copy_first ? copy : block);
    steps.push_back(copy_first ? block : copy);
    // Long enough for the operation to park, or for the daemon to find nothing to do.
    if (random.chance(kAlways / 2)) steps.push_back({StepKind::kPause, 0, random.skewed(200'000)});
    steps.push_back({StepKind::kCopyBack, 0, 0, 1});
    auto& others = program.steps[1 - first];
    if (random.chance(kAlways / 2)) others.push_back({StepKind::kPause, 0, random.skewed(200'000)});
    others.push_back({StepKind::kStart, 0, 0, 0, random.below(2)});
    others.push_back({StepKind::kWait});
    others.push_back(copy);
    for (auto& all : program.steps) all.push_back({StepKind::kWait});
  }
}

}  // namespace

Case copies_case(uint64_t seed, PlanCache& plans) {
  static constexpr StreamKind kKinds[] = {StreamKind::kDisorder,     StreamKind::kDisorder,
                                          StreamKind::kSynchronized, StreamKind::kFewSms,
                                          StreamKind::kOneStream,    StreamKind::kInDriver};
  Random random(seed, 21);
  const StreamKind kind = kKinds[random.below(uint32_t(std::size(kKinds)))];
  Case drawn{{}, stream_options(kind, seed), seed};
  Program& program = drawn.program;
  program = stream_program(kind, seed, drawn.options, plans);
  program.name = "copies";
  for (LaneSpec& lane : program.lanes)
    if (random.chance(3 * kAlways / 4)) let_copies_move(lane, random, plans);
  if (!program.has_copies()) let_copies_move(program.lanes[0], random, plans);
  // What loads kernels keeps a proxy, too, from the driver.
  for (auto& steps : program.steps)
    for (Step& step : steps)
      if (step.kind == StepKind::kLoadKernels)
        step = {StepKind::kCopyBack, 0, 0, random.below(program.streams)};
  if (random.chance(kAlways / 8)) let_a_lane_run_far(program, random);
  if (random.chance(kAlways / 2)) let_it_break(drawn, random);
  if (kind == StreamKind::kInDriver && random.chance(kAlways / 2))
    let_a_daemon_be_needed(drawn, random, plans);
  return drawn;
}

}  // namespace starling::sim
