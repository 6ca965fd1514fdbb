#include "machine/sim/program.h"

#include <algorithm>

#include "machine/sim/crossing_plan.h"
#include "machine/sim/random.h"
#include "plan/generate.h"
#include "plan/geometry.h"
#include "wire/connector.h"

namespace starling::sim {
namespace {

constexpr uint64_t kSizes[] = {256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 512 << 10, 1 << 20};

}  // namespace

uint32_t LaneSpec::block_count() const {
  uint32_t most = 1;
  for (const CallSpec& call : calls) most = std::max(most, call.plan->block_count());
  return most;
}

bool LaneSpec::has(Protocol protocol) const {
  return std::any_of(calls.begin(), calls.end(),
                     [protocol](const CallSpec& call) { return call.plan->protocol() == protocol; });
}

bool LaneSpec::crosses_hosts(const Options& machine) const {
  return std::any_of(ranks.begin(), ranks.end(),
                     [&](uint32_t rank) { return machine.host_of(rank) != machine.host_of(ranks[0]); });
}

bool Program::has_copies() const {
  return std::any_of(lanes.begin(), lanes.end(), [](const LaneSpec& lane) { return lane.copies; });
}

uint32_t Program::depth(uint32_t lane) const {
  if (lanes[lane].captured) return uint32_t(lanes[lane].calls.size());
  uint32_t deepest = 1;
  for (const auto& list : steps) {
    uint32_t now = 0;
    for (const Step& step : list) {
      if (step.kind == StepKind::kWait) now = 0;
      if (step.submits() && step.lane == lane) deepest = std::max(deepest, ++now);
    }
  }
  return deepest;
}

Program dfccl_program(const DfcclOptions& o, uint64_t seed, const Options& machine, PlanCache& plans) {
  Program program;
  program.name = "dfccl " + std::to_string(o.program);
  program.rank_count = o.ranks;
  Random random(seed, 2);
  for (uint32_t c = 0; c < o.collectives; ++c) {
    LaneSpec lane;
    for (uint32_t r = 0; r < o.ranks; ++r) lane.ranks.push_back(r);
    CallSpec& call = lane.calls.emplace_back();
    call.count = std::max<uint64_t>(kSizes[c % std::size(kSizes)] / o.divisor / 4, 1);
    call.plan = plans.get("ring", {Collective::kAllReduce, o.ranks, 0, machine.blocks, false});
    program.lanes.push_back(std::move(lane));
  }
  program.steps.resize(o.ranks);
  std::vector<uint32_t> order(o.collectives);
  for (uint32_t r = 0; r < o.ranks; ++r) {
    for (uint32_t i = 0; i < o.iterations; ++i) {
      for (uint32_t c = 0; c < o.collectives; ++c) order[c] = c;
      if (random.chance(o.disorder)) shuffle(order, random);
      for (uint32_t c : order) {
        program.steps[r].push_back({StepKind::kSubmit, c, 0});
        if (o.program == 2) program.steps[r].push_back({StepKind::kSynchronize, 0, 0});
      }
      program.steps[r].push_back({StepKind::kWait, 0, 0});
    }
  }
  return program;
}

namespace {

constexpr Collective kKinds[] = {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
                                 Collective::kBroadcast, Collective::kReduce,    Collective::kAllToAll,
                                 Collective::kGather,    Collective::kScatter,   Collective::kSendRecv};

std::shared_ptr<const Plan> random_plan(Collective kind, uint32_t size, Random& random,
                                        const Options& machine, PlanCache& plans) {
  const auto names = algorithms_for(kind);
  std::string_view algorithm = names[random.below(uint32_t(names.size()))];
  if (!algorithm_takes(algorithm, kind, size)) algorithm = names[0];
  const bool rooted = kind == Collective::kBroadcast || kind == Collective::kReduce ||
                      kind == Collective::kGather || kind == Collective::kScatter;
  const uint32_t root = rooted ? random.below(size) : 0;
  const uint32_t blocks = 1 + random.below(machine.blocks);
  // The plan of sums for one buffer, which has scratch, is right for two as well.
  const bool sums =
      kind == Collective::kAllReduce || kind == Collective::kReduceScatter || kind == Collective::kReduce;
  const bool has_scratch = sums && (algorithm == "ring_put" || algorithm == "chain_put");
  if (has_scratch && random.chance(kAlways / 2))
    return plans.get(algorithm, {kind, size, root, blocks, true});
  if (blocks == 1 || random.chance(kAlways / 2))
    return plans.get(algorithm, {kind, size, root, blocks, false});
  return crossing_plan(plans.get(algorithm, {kind, size, root, 1, false}), blocks, random);
}

uint64_t random_count(const CallSpec& call, uint32_t size, Random& random, const Options& machine) {
  if (call.plan->protocol() == Protocol::kPull && random.chance(kAlways / 2)) {
    // A last tile that has bytes for some blocks only.
    const uint64_t parts = (random.chance(kAlways / 2) ? size : 1) * call.plan->header(0)->block_count;
    const uint64_t tile = std::max<uint64_t>(machine.slot_bytes / data_type_bytes(call.data_type), 1);
    return (1 + random.below(3)) * tile * parts + 1 + random.below(4);
  }
  // Every word of a packet is a step of its own: fewer elements do.
  return 1 + random.skewed(call.plan->protocol() == Protocol::kPackets ? 256 : 4096);
}

CallSpec random_call(Collective kind, uint32_t size, Random& random, const Options& machine,
                     PlanCache& plans) {
  static constexpr DataType kTypes[] = {DataType::kInt32, DataType::kUint8, DataType::kInt64,
                                        DataType::kFloat32};
  static constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kAvg,
                                      ReduceOp::kPremulSum};
  CallSpec call;
  call.plan = random_plan(kind, size, random, machine, plans);
  call.data_type = kTypes[random.below(std::size(kTypes))];
  // A pull names the input as it is (comm/lowering.cc): premul_sum, the last, takes other plans.
  const uint32_t ops = uint32_t(std::size(kOps)) - (call.plan->protocol() == Protocol::kPull);
  if (traits_of(kind).reduces) call.reduce_op = kOps[random.below(ops)];
  // With these every product and sum is exact, or wraps alike.
  if (call.reduce_op == ReduceOp::kPremulSum) call.scalar = random.chance(kAlways / 2) ? 0.5 : 2;
  call.count = random_count(call, size, random, machine);
  return call;
}

}  // namespace

LaneSpec random_lane(Random& random, uint32_t rank_count, const Options& machine, PlanCache& plans) {
  LaneSpec lane;
  for (uint32_t r = 0; r < rank_count; ++r)
    if (random.chance(3 * kAlways / 4)) lane.ranks.push_back(r);
  if (lane.ranks.size() < 2) lane.ranks = {0, 1};
  shuffle(lane.ranks, random);
  const Collective first = kKinds[random.below(std::size(kKinds))];
  if (first == Collective::kSendRecv) lane.ranks.resize(2);
  const uint32_t size = uint32_t(lane.ranks.size());
  lane.calls.push_back(random_call(first, size, random, machine, plans));
  for (uint32_t more = random.chance(kAlways / 2) ? 1 + random.below(2) : 0; more > 0; --more) {
    if (random.chance(kAlways / 2)) {
      // The same on another number of elements.
      CallSpec call = lane.calls.back();
      call.count = random_count(call, size, random, machine);
      lane.calls.push_back(std::move(call));
    } else {
      const Collective kind = kKinds[random.below(uint32_t(std::size(kKinds)) - (size > 2))];
      lane.calls.push_back(random_call(kind, size, random, machine, plans));
    }
  }
  lane.priority = int16_t(random.below(3)) - 1;
  return lane;
}

Program random_program(uint64_t seed, const Options& machine, PlanCache& plans) {
  Random random(seed, 3);
  Program program;
  program.name = "random";
  program.rank_count = 2 + random.below(5);
  const uint32_t lanes = 1 + random.below(6);
  for (uint32_t k = 0; k < lanes; ++k)
    program.lanes.push_back(random_lane(random, program.rank_count, machine, plans));
  program.steps.resize(program.rank_count);
  const uint32_t iterations = 1 + random.below(3);
  std::vector<uint32_t> calls;  // of one iteration: some lanes more than once
  for (uint32_t k = 0; k < lanes; ++k)
    for (uint32_t n = random.chance(kAlways / 8) ? 1 + random.below(12) : 1 + random.below(2); n > 0; --n)
      calls.push_back(k);
  const uint32_t synchronize = random.chance(kAlways / 3) ? random.below(kAlways / 2) : 0;
  for (uint32_t r = 0; r < program.rank_count; ++r) {
    auto& steps = program.steps[r];
    for (uint32_t i = 0; i < iterations; ++i) {
      shuffle(calls, random);
      for (uint32_t k : calls) {
        const auto& group = program.lanes[k].ranks;
        if (std::find(group.begin(), group.end(), r) == group.end()) continue;
        steps.push_back({StepKind::kSubmit, k, 0});
        if (random.chance(synchronize)) steps.push_back({StepKind::kSynchronize, 0, 0});
        if (random.chance(kAlways / 32)) steps.push_back({StepKind::kPause, 0, random.skewed(100'000)});
      }
      // The last one is waited for by the end of the program.
      if (i + 1 < iterations && random.chance(kAlways / 2)) steps.push_back({StepKind::kWait, 0, 0});
    }
  }
  return program;
}

namespace {

void draw_machine(Options& o, Random& random) {
  static constexpr uint32_t kThreads[] = {1, 1, 1, 1, 1, 1, 2, 4};
  o.blocks = random.chance(kAlways / 3) ? 1 + random.below(3) : 1;
  o.threads = kThreads[random.below(8)];
  o.mean_slice = 1u << random.below(6);
  o.op_ns = 4 + random.below(40);
  o.slow_chance = random.chance(kAlways / 4) ? kAlways / 8 : 0;
  o.slow_factor = 1 + random.below(30);
  o.stall_chance = random.chance(kAlways / 3) ? 100 : 0;
  o.stall_ns = 1 + random.below(50'000);
  if (random.chance(kAlways / 2)) {
    o.late_store_chance = random.below(kAlways / 2);
    o.late_store_ns = random.skewed(3000);
  }
  o.late_data_chance = random.chance(kAlways / 2) ? kAlways / 2 : 0;
}

void draw_scheduling(Options& o, Random& random) {
  // From one poll to much more than a message takes; odd, so that each is known by its length.
  static constexpr uint64_t kBudgets[] = {1, 101, 501, 1501, 5001, 20001};
  o.initial_budget = kBudgets[random.below(6)];
  o.minimum_budget = std::min<uint64_t>(o.initial_budget, kBudgets[random.below(6)]);
  o.maximum_budget = o.initial_budget * (1 + random.below(8));
  o.quit_period = 2003 + 2 * random.skewed(100'000);
  o.residency_limit = random.chance(kAlways / 4) ? 5005 + 2 * random.below(40'000) : 1'000'000'005;
  o.success_factor = 1 + random.below(20);
  o.position_shift = random.below(3);
  o.fetch_batch = 1 + random.below(8);
  o.priority_order = random.chance(kAlways / 3);
  o.in_turn = random.chance(kAlways / 2);
}

void draw_interference(Options& o, Random& random) {
  if (random.chance(kAlways / 3)) o.forced_park_chance = random.below(kAlways / 3);
  if (random.chance(kAlways / 4)) o.forced_quit_chance = random.below(kAlways / 16);
  if (random.chance(kAlways / 8)) o.drain_chance = random.below(kAlways / 4);
  if (random.chance(kAlways / 8)) {
    o.poller_away_chance = random.below(kAlways / 2);
    o.poller_away_ns = 1 + random.below(300'000);
  }
  o.launch_delay_ns = random.skewed(10'000);
  o.restart_ns = random.skewed(10'000);
  if (random.chance(kAlways / 3)) o.connect_delay_ns = random.skewed(50'000);
  if (random.chance(kAlways / 4)) {
    o.late_rank_chance = kAlways / 4;
    o.late_rank_ns = 1 + random.below(200'000);
  }
  if (random.chance(kAlways / 4)) o.fence_chance = random.below(kAlways);
  if (random.chance(kAlways / 4)) o.callback_submits = kAlways / 2;
}

void draw_memory(Options& o, Random& random) {
  if (random.chance(kAlways / 4)) o.submission_capacity = 1u << random.below(4);
  if (random.chance(kAlways / 4)) o.completion_capacity = 1u << random.below(3);
  o.completion_kind = random.below(3);
  if (random.chance(kAlways / 4)) o.slot_bytes = 256u << random.below(4);
  o.packet_bytes = 16u << random.below(5);
  o.private_slots = 1 + random.below(3);
  o.pool_slots = random.below(16);
  // The first messages of a lane fill their slots, and are never bound.
  if (random.chance(kAlways / 2)) o.first_message = kPacketSlots + random.below(8);
  if (random.chance(kAlways / 4)) {
    // Where progress words, tokens, laps of the rings and 32-bit halves wrap.
    static constexpr uint64_t kSequences[] = {(1 << 24) - 2, (1 << 28) - 2, (uint64_t(1) << 32) - 2};
    o.first_sequence = kSequences[random.below(3)];
    o.first_message = (uint64_t(1) << 32) - 1 - random.below(16);
    o.first_position = (uint64_t(1) << 32) - random.below(2) * 65536;
  }
  if (random.chance(kAlways / 2)) o.plan_room = 128u << random.below(4);
}

}  // namespace

Options random_options(uint64_t seed) {
  Random random(seed, 4);
  Options o;
  draw_machine(o, random);
  draw_scheduling(o, random);
  draw_interference(o, random);
  draw_memory(o, random);
  return o;
}

}  // namespace starling::sim
