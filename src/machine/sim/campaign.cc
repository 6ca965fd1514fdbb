#include "machine/sim/campaign.h"

#include <algorithm>
#include <array>

#include "machine/sim/copy_program.h"
#include "machine/sim/graph_program.h"
#include "machine/sim/stream_program.h"

namespace starling::sim {
namespace {

constexpr std::array<const char*, kCampaignCount> kNames = {"dfccl1",
                                                            "dfccl2",
                                                            "random",
                                                            "death",
                                                            "mixed",
                                                            "dfccl1-full",
                                                            "dfccl2-full",
                                                            "streams",
                                                            "streams-sync",
                                                            "streams-one-queue",
                                                            "streams-full-queue",
                                                            "streams-few-sms",
                                                            "streams-one",
                                                            "streams-graphs",
                                                            "streams-in-driver",
                                                            "streams-death",
                                                            "streams-mixed",
                                                            "hosts",
                                                            "hosts-death",
                                                            "copies"};

Case dfccl_case(uint32_t program, bool full, uint64_t seed, PlanCache& plans) {
  Case drawn{{}, random_options(seed), seed};
  if (full) {
    // Slots as real ranks have them; the rest is as wild as ever.
    drawn.options.slot_bytes = 65536;
    drawn.options.pool_slots = 8;
    drawn.options.cell_bytes = 256;
  }
  drawn.program =
      dfccl_program({.program = program, .iterations = full ? 200u : 1u, .divisor = full ? 1u : 64u}, seed,
                    drawn.options, plans);
  return drawn;
}

// One rank dies at some time; whatever waited for it ends with an error when its time is up.
void let_a_rank_die(Case& drawn) {
  Random random(drawn.seed, 5);
  drawn.options.dying_rank = int32_t(random.below(drawn.program.rank_count));
  drawn.options.dying_ns = random.skewed(300'000);
  drawn.options.timeout_ns = 2'000'000;
}

// One lane, whose order is the same everywhere, and budgets that never end: who waits for the dead hears of
// it in its wait.
void let_waits_last(Case& drawn) {
  Options& o = drawn.options;
  o.initial_budget = o.minimum_budget = o.maximum_budget = 1'000'000'001;
  o.poll_ns = 10'000;
  for (auto& steps : drawn.program.steps)
    std::erase_if(steps, [](const Step& s) { return s.names_lane() && s.lane != 0; });
}

// A lane whose flags come round while its messages are short, and then long ones look at what the slots held
// 2^32 messages before.
void let_flags_come_round(Case& drawn, PlanCache& plans) {
  drawn.options.first_message = (uint64_t(1) << 32) - 1;
  drawn.options.late_store_chance = 0;  // see SimLane::make_packets()
  LaneSpec& lane = drawn.program.lanes[0];
  CallSpec call;
  const uint32_t size = uint32_t(lane.ranks.size());
  call.plan = plans.get("direct_packets", {Collective::kBroadcast, size, 0, 1, false});
  constexpr uint32_t kCalls = 2 * kPacketSlots + 2;
  for (uint32_t k = 0; k < kCalls; ++k) {
    call.count = k <= kPacketSlots ? 1 + drawn.seed % 4 : drawn.options.packet_bytes / 4;
    if (k == 0) lane.calls.clear();
    lane.calls.push_back(call);
  }
  for (const uint32_t rank : lane.ranks) {
    auto& steps = drawn.program.steps[rank];
    std::erase_if(steps, [](const Step& s) { return s.names_lane() && s.lane == 0; });
    steps.insert(steps.begin(), kCalls, Step{StepKind::kSubmit, 0});
  }
}

// Nothing but the bell is heard in time: who is not rung makes no progress. So nobody leaves for being idle,
// and no program asks for that.
void let_ranks_sleep(Case& drawn) {
  Options& o = drawn.options;
  o.bells = 1;
  o.threads = 1;  // as where blocks sleep: the fence of who rings is not for stores of other threads
  o.sleep_ns = o.quit_period = o.residency_limit = 1'000'000'000;
  o.forced_quit_chance = o.drain_chance = 0;
  for (auto& steps : drawn.program.steps)
    std::erase_if(steps, [](const Step& s) { return s.kind == StepKind::kSynchronize; });
}

// Half of the programs that pull do so as processes on GPUs. A GPU's blocks do not sleep at bells. Drawn
// apart: what other cases are does not depend on it.
void let_buffers_be_registered(Case& drawn) {
  Random random(drawn.seed, 13);
  const auto& lanes = drawn.program.lanes;
  const bool pulls =
      std::any_of(lanes.begin(), lanes.end(), [](const LaneSpec& lane) { return lane.has(Protocol::kPull); });
  if (!pulls || drawn.options.bells || !random.chance(kAlways / 2)) return;
  drawn.options.opens = 1;
  drawn.options.open_delay_ns = random.skewed(100'000);
  drawn.options.bounces = uint32_t(random.below(3));
}

// Fewer than the daemon has blocks. Drawn apart, as above.
void leave_few_slots(StreamKind kind, Case& drawn) {
  Random random(drawn.seed, 22);
  Options& o = drawn.options;
  if (o.blocks < 2 || !random.chance(kind == StreamKind::kFewSms ? kAlways / 2 : kAlways / 8)) return;
  o.sm_slots -= 1 + random.below(o.blocks - 1);
}

// At once, in half of them: then watches serve as often as a daemon.
void draw_wake(Case& drawn) {
  Random random(drawn.seed, 33);
  drawn.options.wake_ns = random.chance(kAlways / 2) ? 0 : random.skewed(200'000);
}

// Where it may be kept out all streams that stand have watches: who needs a guard for others waits for it.
// And each of them has room. Drawn apart, as above.
void keep_daemon_out(Case& drawn) {
  Random random(drawn.seed, 34);
  Options& o = drawn.options;
  if (o.watch_limit == 0 || drawn.program.has_copies() || !random.chance(kAlways / 2)) return;
  o.daemon_kept_out = 1;
  o.watch_limit = drawn.program.streams;
  o.sm_slots = std::max(o.sm_slots, o.gate_limit + 3);
}

// Their further blocks have no room of their own: on a GPU that others fill there is none. Drawn apart, as
// above.
void widen_watches(Case& drawn) {
  Random random(drawn.seed, 35);
  Options& o = drawn.options;
  if (o.watch_limit == 0 || o.blocks < 2 || !random.chance(kAlways / 2)) return;
  o.watch_blocks = 2 + random.below(o.blocks - 1);
  o.wide_watches = 1 + random.below(o.watch_limit);
}

// For ever, in half of those that do: then nothing but a call lets the daemon come. Who is stuck at first
// leaves soon, in some. Drawn apart, as above.
void wait_for_calls(Case& drawn) {
  Random random(drawn.seed, 31);
  drawn.options.only_heard = random.chance(kAlways / 2);
  drawn.options.rendezvous = random.chance(kAlways / 2);
  if (random.chance(kAlways / 2)) drawn.options.watch_limit = 1 + random.below(3);
  if (random.chance(kAlways / 4)) return;
  drawn.options.missing_ns = random.chance(kAlways / 2) ? kForever : 1 + random.skewed(200'000);
}

// All streams, in half of those that have some. One watch that serves needs a place, beside those of gates, a
// guard, and a block of a start kernel. Drawn apart, as above.
void watch_more(Case& drawn) {
  Random random(drawn.seed, 36);
  Options& o = drawn.options;
  if (o.watch_limit != 0 && random.chance(kAlways / 2)) o.watch_limit = drawn.program.streams;
  if (o.sm_slots < o.gate_limit + 3) o.watch_limit = 0;
}

// Of those whose lanes begin with what the CPU submits, some begin that as kernels. Drawn apart, as above.
void call_as_kernels(Case& drawn) {
  Random random(drawn.seed, 37);
  Options& o = drawn.options;
  if (o.before_streams_chance == 0 || drawn.program.has_copies() || !random.chance(kAlways / 2)) return;
  o.call_boxes = 1 + random.below(3);
  o.call_row_ns = random.chance(kAlways / 4) ? kForever : random.skewed(100'000);
  o.call_linger_ns = random.chance(kAlways / 8) ? 0 : 1 + random.skewed(100'000);
  o.call_life_ns = 1 + random.skewed(1'000'000);
  o.call_wait_ns = random.skewed(200'000);
  o.sm_slots += o.call_boxes;
}

Case stream_case(StreamKind kind, uint64_t seed, PlanCache& plans) {
  Case drawn{{}, stream_options(kind, seed), seed};
  wait_for_calls(drawn);
  draw_wake(drawn);
  drawn.program = stream_program(kind, seed, drawn.options, plans);
  drawn.options.sm_slots += slots_of_graphs(drawn.program);
  leave_few_slots(kind, drawn);
  watch_more(drawn);
  keep_daemon_out(drawn);
  widen_watches(drawn);
  call_as_kernels(drawn);
  return drawn;
}

// GPUs on several hosts. Graphs capture nothing between hosts (comm/capture.cc).
Case hosts_case(uint64_t seed, PlanCache& plans) {
  static constexpr StreamKind kKinds[] = {
      StreamKind::kDisorder, StreamKind::kSynchronized, StreamKind::kOneQueue, StreamKind::kFullQueue,
      StreamKind::kFewSms,   StreamKind::kOneStream,    StreamKind::kInDriver};
  const StreamKind kind = kKinds[seed % std::size(kKinds)];
  Case drawn{{}, stream_options(kind, seed), seed};
  Random random(seed, 14);
  Options& o = drawn.options;
  o.hosts = 2 + random.below(2);
  o.carry_ns = 100 + random.skewed(100'000);
  if (random.chance(kAlways / 2)) {
    o.path_break_chance = random.below(kAlways / 8);
    o.path_break_ns = 1 + random.below(200'000);
  }
  if (random.chance(kAlways / 2)) {
    o.nap_chance = random.below(kAlways / 2);
    o.nap_ns = 1 + random.below(100'000);
  }
  drawn.program = stream_program(kind, seed, o, plans);
  drawn.program.name = "hosts";
  return drawn;
}

}  // namespace

const char* campaign_name(Campaign campaign) { return kNames[uint32_t(campaign)]; }

std::optional<Campaign> campaign_named(std::string_view name) {
  for (uint32_t k = 0; k < kCampaignCount; ++k)
    if (name == kNames[k]) return Campaign(k);
  return std::nullopt;
}

Campaign turn_in_mixed(uint64_t seed) {
  if (seed % 16 == 9) return seed / 16 % 4 == 3 ? Campaign::kHostsDeath : Campaign::kHosts;
  if (seed % 16 == 15) return Campaign::kCopies;
  if (seed % 2) return Campaign(seed / 2 % 4);
  return Campaign(uint32_t(Campaign::kStreams) + seed / 2 % kStreamCampaignCount);
}

namespace {

Case draw_plain_case(Campaign campaign, uint64_t seed, PlanCache& plans) {
  switch (campaign) {
    case Campaign::kDfccl1:
    case Campaign::kDfccl2: return dfccl_case(campaign == Campaign::kDfccl1 ? 1 : 2, false, seed, plans);
    case Campaign::kDfccl1Full:
    case Campaign::kDfccl2Full:
      return dfccl_case(campaign == Campaign::kDfccl1Full ? 1 : 2, true, seed, plans);
    case Campaign::kStreamsDeath: {
      // The last kind, where a host can be caught in the driver, more often than the others.
      const uint64_t kind = seed / kStreamCampaignCount % (kStreamKindCount + 3);
      Case drawn = stream_case(StreamKind(std::min<uint64_t>(kind, kStreamKindCount - 1)), seed, plans);
      let_a_rank_die(drawn);
      return drawn;
    }
    case Campaign::kHosts: return hosts_case(seed, plans);
    case Campaign::kHostsDeath: {
      Case drawn = hosts_case(seed, plans);
      let_a_rank_die(drawn);
      return drawn;
    }
    case Campaign::kCopies: return copies_case(seed, plans);
    default: break;
  }
  if (campaign >= Campaign::kStreams)
    return stream_case(StreamKind(uint32_t(campaign) - uint32_t(Campaign::kStreams)), seed, plans);
  Case drawn{{}, random_options(seed), seed};
  drawn.program = random_program(seed, drawn.options, plans);
  Random random(seed, 12);
  if (campaign == Campaign::kRandom && random.chance(kAlways / 16)) let_flags_come_round(drawn, plans);
  if (campaign == Campaign::kDeath) let_a_rank_die(drawn);
  if (random.chance(kAlways / 4))
    let_ranks_sleep(drawn);
  else if (campaign == Campaign::kDeath && random.chance(kAlways / 8))
    let_waits_last(drawn);
  return drawn;
}

}  // namespace

Case draw_case(Campaign campaign, uint64_t seed, PlanCache& plans) {
  if (campaign == Campaign::kMixed) campaign = turn_in_mixed(seed);
  if (campaign == Campaign::kStreamsMixed)
    campaign = Campaign(uint32_t(Campaign::kStreams) + seed % kStreamCampaignCount);
  Case drawn = draw_plain_case(campaign, seed, plans);
  let_buffers_be_registered(drawn);
  return drawn;
}

}  // namespace starling::sim
