#include "machine/sim/stream_program.h"

#include <algorithm>

#include "machine/sim/graph_program.h"
#include "machine/sim/random.h"

namespace starling::sim {
namespace {

// The calls of one rank, iteration by iteration.
class Writer {
 public:
  Writer(StreamKind kind, const Program& program, const Options& machine, uint64_t seed, uint32_t rank,
         bool synchronizes, const std::vector<std::vector<uint32_t>>& together)
      : kind_(kind),
        synchronizes_(synchronizes),
        program_(program),
        machine_(machine),
        random_(hash_combine(seed, rank), 7),
        rank_(rank),
        together_(together) {}

  // special: two bits an iteration; which of the kind's sorts it is.
  std::vector<Step> write(uint32_t iterations, std::vector<uint32_t> calls, uint64_t held_lanes,
                          uint64_t special) {
    for (uint32_t i = 0; i < iterations; ++i) {
      const uint32_t sort = (special >> 2 * i) & 3;
      if (sort >= 2) {
        prepared();
        continue;
      }
      const bool ordered = sort == 1 && kind_ == StreamKind::kInDriver;
      if (ordered)
        std::sort(calls.begin(), calls.end());
      else
        shuffle(calls, random_);
      if (synchronizes_) order_replays(calls);
      auto replays = std::count_if(calls.begin(), calls.end(), [this](uint32_t c) { return is_graph(c); });
      for (uint32_t lane : calls)
        if (is_graph(lane))
          replay(lane - uint32_t(program_.lanes.size()), --replays == 0);
        else if (!mine_of(lane).empty())
          call(lane, ordered ? random_.chance(kAlways / 2) : (held_lanes >> lane) & 1);
      wait_on_streams();
      if (random_.chance(kAlways / 2)) steps_.push_back({StepKind::kWait});
    }
    return std::move(steps_);
  }

 private:
  bool member(uint32_t lane) const {
    const auto& group = program_.lanes[lane].ranks;
    return std::find(group.begin(), group.end(), rank_) != group.end();
  }

  // Calls name graphs behind the lanes.
  bool is_graph(uint32_t call) const { return call >= program_.lanes.size(); }

  // A device synchronization waits for replays, which wait for peers': all come to them in one order.
  void order_replays(std::vector<uint32_t>& calls) const {
    std::vector<uint32_t> graphs;
    for (uint32_t call : calls)
      if (is_graph(call)) graphs.push_back(call);
    std::sort(graphs.begin(), graphs.end());
    for (auto next = graphs.begin(); uint32_t& call : calls)
      if (is_graph(call)) call = *next++;
  }

  // `last`: of the iteration. Where one lane at most holds its stream, a rank that waits for both waits for
  // no call that comes behind such a wait of another.
  void replay(uint32_t graph, bool last) {
    const auto& branches = program_.graphs[rank_][graph].branches;
    const bool mine = std::any_of(branches.begin(), branches.end(), [](const auto& b) { return !b.empty(); });
    if (mine) steps_.push_back({StepKind::kReplay, graph});
    if ((synchronizes_ || last) && random_.chance(kAlways / 3)) steps_.push_back({StepKind::kSynchronize});
    if (random_.chance(kAlways / 16)) steps_.push_back({StepKind::kPause, 0, random_.skewed(100'000)});
  }

  // A lane has one stream: its operations come to their starts in order.
  uint32_t stream_of(uint32_t lane) const { return lane % program_.streams; }

  void call(uint32_t lane, bool held) {
    if (random_.chance(kind_ == StreamKind::kFewSms ? kAlways / 2 : kAlways / 6)) compute();
    const uint64_t copy_ns = random_.chance(kAlways / 4) ? 1 + random_.skewed(20'000) : 0;
    start(StepKind::kStart, lane, copy_ns, held);
    if (synchronizes_ && random_.chance(kAlways / 3)) steps_.push_back({StepKind::kSynchronize});
    if (kind_ == StreamKind::kInDriver && random_.chance(kAlways / 3)) wait_in_driver();
    if (random_.chance(kAlways / 32)) steps_.push_back({StepKind::kPause, 0, random_.skewed(100'000)});
  }

  // Of the lanes that are called with this one, itself among them: those that the rank is in.
  std::vector<uint32_t> mine_of(uint32_t lane) const {
    std::vector<uint32_t> mine{lane};
    if (!together_[lane].empty()) mine = together_[lane];
    std::erase_if(mine, [this](uint32_t one) { return !member(one); });
    return mine;
  }

  void start(StepKind kind, uint32_t lane, uint64_t ns, bool held) {
    std::vector<uint32_t> mine = mine_of(lane);
    if (mine.size() > 1) shuffle(mine, random_);
    ++groups_;
    for (uint32_t one : mine)
      steps_.push_back({kind, one, ns, stream_of(one), held, 1, false, mine.size() > 1 ? groups_ : 0});
  }

  void wait_in_driver() {
    if (random_.chance(kAlways / 2))
      steps_.push_back({StepKind::kLoadKernels});
    else
      steps_.push_back({StepKind::kCopyBack, 0, 0, random_.below(program_.streams)});
  }

  void compute() {
    const uint32_t stream = random_.below(program_.streams);
    const uint32_t blocks = 1 + random_.below(machine_.sm_slots * 2);
    steps_.push_back({StepKind::kCompute, 0, 1 + random_.skewed(60'000), stream, 0, blocks});
  }

  void wait_on_streams() {
    std::vector<uint32_t> lanes;
    for (uint32_t lane = 0; lane < program_.lanes.size(); ++lane)
      if (!program_.lanes[lane].captured && member(lane) && random_.chance(3 * kAlways / 4))
        lanes.push_back(lane);
    shuffle(lanes, random_);
    for (uint32_t lane : lanes) {
      steps_.push_back({StepKind::kStreamWait, lane, 0, stream_of(lane)});
      if (kind_ == StreamKind::kInDriver && random_.chance(kAlways / 4)) wait_in_driver();
    }
  }

  // One operation a stream, in any order, every stream being idle.
  void prepared() {
    steps_.push_back({StepKind::kWait});
    std::vector<uint32_t> lanes;
    for (uint32_t lane = 0; lane < std::min<size_t>(program_.streams, program_.lanes.size()); ++lane)
      if (!mine_of(lane).empty()) lanes.push_back(lane);
    shuffle(lanes, random_);
    for (uint32_t lane : lanes) {
      start(StepKind::kPrepared, lane, 0, true);
      // Long enough for it to wait at its place before others come.
      if (random_.chance(kAlways / 2)) steps_.push_back({StepKind::kPause, 0, 1 + random_.below(50'000)});
    }
    steps_.push_back({StepKind::kWait});
  }

  StreamKind kind_;
  bool synchronizes_;
  const Program& program_;
  const Options& machine_;
  Random random_;
  uint32_t rank_;
  const std::vector<std::vector<uint32_t>>& together_;
  uint32_t groups_ = 0;
  std::vector<Step> steps_;
};

LaneSpec wide_lane(Random& random, uint32_t rank_count, const Options& machine, PlanCache& plans) {
  LaneSpec lane;
  for (uint32_t r = 0; r < rank_count; ++r) lane.ranks.push_back(r);
  CallSpec& call = lane.calls.emplace_back();
  call.plan = plans.get("ring", {Collective::kAllReduce, rank_count, 0, machine.blocks, false});
  call.count = 1 + random.skewed(1024);
  return lane;
}

// Between hosts nothing but slots is carried (comm/lane.cc, check).
LaneSpec any_lane(Random& random, uint32_t rank_count, const Options& machine, PlanCache& plans) {
  for (;;) {
    LaneSpec lane = random_lane(random, rank_count, machine, plans);
    if (!lane.crosses_hosts(machine) || (!lane.has(Protocol::kPackets) && !lane.has(Protocol::kPull)))
      return lane;
  }
}

// Of a stream's lanes, by the first: those that are called together with it, and not otherwise. They count as
// one where they hold it.
std::vector<std::vector<uint32_t>> called_together(const Program& program, uint64_t seed,
                                                   const Options& machine) {
  Random random(seed, 10);
  std::vector<std::vector<uint32_t>> together(program.lanes.size());
  const uint32_t most =
      machine.launch_limit / (machine.watch_limit > 0 ? 3 : 2);  // the launch queue takes all
  for (uint32_t stream = 0; stream + program.streams < program.lanes.size(); ++stream) {
    if (!random.chance(kAlways / 3)) continue;
    for (uint32_t lane = stream; lane < program.lanes.size(); lane += program.streams)
      if (together[stream].size() < most) together[stream].push_back(lane);
  }
  return together;
}

}  // namespace

Program stream_program(StreamKind kind, uint64_t seed, const Options& machine, PlanCache& plans) {
  Random random(seed, 6);
  Program program;
  program.name = "streams";
  program.rank_count = 2 + random.below(3);
  program.streams = kind == StreamKind::kOneStream ? 1 : 1 + random.below(4);
  const uint32_t lanes = 1 + random.below(6);
  // Where a start kernel that keeps its place leaves no room for the daemon: operations that need all ranks
  // and all blocks.
  const bool all_wide = (kind == StreamKind::kInDriver || kind == StreamKind::kGraphs) &&
                        machine.sm_slots == machine.blocks + 1 && machine.blocks > 1;
  for (uint32_t k = 0; k < lanes; ++k)
    program.lanes.push_back(all_wide ? wide_lane(random, program.rank_count, machine, plans)
                                     : any_lane(random, program.rank_count, machine, plans));
  std::vector<uint32_t> calls;
  for (uint32_t k = 0; k < lanes; ++k)
    for (uint32_t n = random.chance(kAlways / 8) ? 1 + random.below(14) : 1 + random.below(2); n > 0; --n)
      calls.push_back(k);
  const auto together = called_together(program, seed, machine);
  for (const auto& lanes : together)
    for (size_t k = 1; k < lanes.size(); ++k) std::erase(calls, lanes[k]);
  const uint32_t iterations = 1 + random.below(3) + (kind == StreamKind::kInDriver);
  uint64_t first_lanes = (uint64_t(1) << program.streams) - 1;
  bool may_hold = kind == StreamKind::kDisorder || kind == StreamKind::kFewSms;
  bool synchronizes = kind == StreamKind::kSynchronized || kind == StreamKind::kOneQueue;
  if (kind == StreamKind::kGraphs) {
    const uint32_t graphs = 1 + random.below(std::min(program.streams, 2u));
    Random apart(seed, 26);
    add_graphs(program, graphs, random, apart, machine, plans);
    for (uint32_t g = 0; g < graphs; ++g)
      calls.insert(calls.end(), 1 + random.below(3), uint32_t(program.lanes.size()) + g);
    // One lane holds its stream, which is not one that replays stand in.
    synchronizes = random.chance(kAlways / 2);
    may_hold = !synchronizes;
    first_lanes &= uint64_t(1) << (graphs + random.below(3));
  }
  const uint64_t held = may_hold ? random.next() & first_lanes : 0;
  const bool has_special = kind == StreamKind::kOneQueue || kind == StreamKind::kInDriver;
  const uint64_t special = has_special ? random.next() : 0;
  for (uint32_t r = 0; r < program.rank_count; ++r)
    program.steps.push_back(Writer(kind, program, machine, seed, r, synchronizes, together)
                                .write(iterations, calls, held, special));
  return program;
}

Options stream_options(StreamKind kind, uint64_t seed) {
  Options o = random_options(seed);
  Random random(seed, 8);
  o.callback_submits = 0;
  // Branches of graphs have queues of their own: no shared one can be captured for.
  o.hardware_queues = kind == StreamKind::kOneQueue    ? 1
                      : kind == StreamKind::kGraphs    ? 32
                      : kind == StreamKind::kFullQueue ? (random.chance(kAlways / 2) ? 1 : 8)
                                                       : (random.chance(kAlways / 2) ? 8 : 32);
  o.queue_depth = kind == StreamKind::kFullQueue ? 6 + random.below(8) : 4096;
  o.launch_limit = o.queue_depth - 3;
  o.gate_limit = random.below(4);
  o.gates = random.chance(3 * kAlways / 4);
  o.doorbells = random.chance(kAlways / 8);
  o.start_limit = 4u << random.below(4);
  const bool crowded =
      (kind == StreamKind::kInDriver || kind == StreamKind::kGraphs) && random.chance(kAlways / 2);
  if (crowded) {
    // A start kernel that keeps its place leaves no room for the whole daemon.
    o.blocks = 2 + random.below(2);
    o.gate_limit = 0;
  }
  o.sm_slots = o.blocks + o.gate_limit + 1 + (kind == StreamKind::kFewSms || crowded ? 0 : random.below(4));
  // Where no stream can stand before the daemon's launch.
  const bool waits_in_driver =
      kind == StreamKind::kInDriver || kind == StreamKind::kOneQueue || kind == StreamKind::kFullQueue;
  if (!waits_in_driver && random.chance(kAlways / 2)) o.before_streams_chance = kAlways / 2;
  if (random.chance(kAlways / 8)) {
    o.poller_away_chance = kAlways / 8;
    o.poller_away_ns = 300'000;
  }
  o.begin_delay_ns = random.skewed(5'000);
  o.daemon_first = kind == StreamKind::kInDriver || random.chance(kAlways / 2);
  if (kind == StreamKind::kInDriver) o.connect_delay_ns = random.skewed(200'000);
  o.guards = random.chance(kAlways / 2);
  return o;
}

}  // namespace starling::sim
