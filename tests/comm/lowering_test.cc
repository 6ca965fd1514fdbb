// Goal: a plan for equal parts never meets a table of counts, and all_to_all in place takes tables only where
// what is received fits where what is sent lay; of processes on GPUs, the buffers that messages name are
// known, and no others. Method: shapes with and without tables, a plan whose facts say that it is for equal
// parts only, and calls lowered as for groups on GPUs.
// sanitize: address (one thread)
#include "comm/lowering.h"

#include <gtest/gtest.h>

#include <array>

#include "base/error.h"
#include "plan/generate.h"
#include "plan/text.h"

namespace starling {
namespace {

// Right for equal parts only: rank 1 passes on, at its own length, what rank 2 sends.
constexpr const char* kEqualOnly = R"(starling-plan 1
name equal_only
collective gather
ranks 3
root 0
in_place 0
chunks_per_group 1
groups 1 3
rank 0 scratch 0
block 0
0 copy input[0] -> output[0] size output[0]
1 recv <1.0 -> output[1] size output[1]
2 recv <1.0 -> output[2] size output[2]
rank 1 scratch 0
block 0
0 send input[0] -> >0.0 size input[0]
1 recv_send <2.0 -> >0.0 size input[0]
rank 2 scratch 0
block 0
0 send input[0] -> >1.0 size input[0]
)";

TEST(Lowering, RefusesAPlanForEqualPartsWhereThereAreCounts) {
  const Plan equal_only = plan_from_text(kEqualOnly);
  ASSERT_TRUE(equal_only.header(0)->uniform_only);
  const Plan any = generate("direct", {Collective::kGather, 3});
  const std::array<size_t, 3> counts = {1, 2, 3};
  Shape equal{.collective = Collective::kGather};
  Shape unequal = equal;
  unequal.output.counts = counts.data();
  EXPECT_NO_THROW(check_parts(equal_only, equal));
  EXPECT_NO_THROW(check_parts(any, unequal));
  try {
    check_parts(equal_only, unequal);
    FAIL() << "it was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::unsupported);
    EXPECT_NE(std::string(error.what()).find("plan equal_only of gather is right for equal parts only"),
              std::string::npos)
        << error.what();
    EXPECT_NE(error.remedy().find("leave the counts out"), std::string::npos) << error.remedy();
  }
}

TEST(Lowering, TakesAllToAllInPlaceWithEqualTablesOnly) {
  PlanCache plans;
  const LoweringContext context{0, 2, 1, &plans};
  float buffer[16];
  const std::array<size_t, 2> counts = {3, 5}, offsets = {0, 3}, shifted = {1, 4}, swapped = {5, 3};
  starling_operation call{};
  call.struct_bytes = sizeof call;
  call.kind = STARLING_ALL_TO_ALL;
  call.data_type = STARLING_FLOAT32;
  call.input = call.output = buffer;
  call.input_counts = call.output_counts = counts.data();
  EXPECT_NO_THROW(lower(context, call));
  call.input_offsets = offsets.data();  // says what none means
  EXPECT_NO_THROW(lower(context, call));
  call.input_offsets = shifted.data();
  EXPECT_THROW(lower(context, call), Error);
  call.input_offsets = nullptr;
  call.output_counts = swapped.data();
  EXPECT_THROW(lower(context, call), Error);
  float other[16];
  call.output = other;
  EXPECT_NO_THROW(lower(context, call));
}

// A rank of processes on GPUs that read each other's buffers.
struct OnGpus {
  Lowered lowered(uint32_t rank, const starling_operation& call) {
    LoweringContext context{rank, 2, 2, &plans, true};
    context.opens = context.reads = true;
    context.added = &added;
    context.chosen = chosen;
    return lower(context, call);
  }
  starling_operation call_of(starling_collective kind, size_t count) {
    starling_operation call{};
    call.struct_bytes = sizeof call;
    call.kind = kind;
    call.data_type = STARLING_FLOAT32;
    // Never looked at, and far from each other.
    call.input = reinterpret_cast<const void*>(uintptr_t(1) << 40);
    call.output = reinterpret_cast<void*>(uintptr_t(1) << 41);
    call.count = count;
    return call;
  }
  PlanCache plans;
  AddedPlans added;
  ChosenPlans* chosen = nullptr;
};

uint64_t offered_bytes(const Lowered& lowered, BufferKind kind) {
  const Extent& offered = lowered.offered.of[kind == BufferKind::kOutput];
  return offered.end - offered.begin;
}
uint64_t offered_input(const Lowered& lowered) { return offered_bytes(lowered, BufferKind::kInput); }
uint64_t offered_output(const Lowered& lowered) { return offered_bytes(lowered, BufferKind::kOutput); }

TEST(Lowering, KnowsWhichBuffersAreReadByProcessesOnGpus) {
  OnGpus ranks;
  const size_t large = size_t(1) << 20;
  // In one shot all of its input, which every rank adds.
  starling_operation reduced = ranks.call_of(STARLING_ALL_REDUCE, large);
  const Lowered added = ranks.lowered(0, reduced);
  EXPECT_TRUE(added.opens);
  EXPECT_EQ(added.offered.of[0].begin, 0u);
  EXPECT_EQ(added.offered.of[0].end, 4 * large);
  EXPECT_EQ(added.offered.of[1].end, 0u);
  // In two, parts of its input, and then the sums.
  reduced.algorithm = "two_shot_pull";
  const Lowered sum = ranks.lowered(0, reduced);
  EXPECT_TRUE(sum.opens);
  EXPECT_EQ(sum.plan->protocol(), Protocol::kPull);
  // Two blocks: of four parts the other rank sums the second and the last, this one the others.
  EXPECT_EQ(sum.offered.of[0].begin, large);
  EXPECT_EQ(sum.offered.of[0].end, 4 * large);
  EXPECT_EQ(sum.offered.of[1].begin, 0u);
  EXPECT_EQ(sum.offered.of[1].end, 3 * large);
  // A gather's root is sent everything, and reads; the other rank's output may be anything.
  const starling_operation gather = ranks.call_of(STARLING_GATHER, large);
  EXPECT_EQ(offered_input(ranks.lowered(0, gather)), 0u);
  EXPECT_TRUE(ranks.lowered(0, gather).opens);
  EXPECT_EQ(offered_input(ranks.lowered(1, gather)), 4 * large);
  EXPECT_EQ(offered_output(ranks.lowered(1, gather)), 0u);
  // What has no bytes is not there.
  const std::array<size_t, 2> none = {0, 0}, some = {0, large};
  starling_operation exchange = ranks.call_of(STARLING_ALL_TO_ALL, 0);
  exchange.algorithm = "pairwise_pull";
  exchange.input_counts = none.data();
  exchange.output_counts = some.data();
  EXPECT_EQ(offered_input(ranks.lowered(0, exchange)), 0u);
  exchange.input_counts = some.data();
  EXPECT_EQ(offered_input(ranks.lowered(0, exchange)), 4 * large);
  // Small ones go another way.
  EXPECT_FALSE(ranks.lowered(0, ranks.call_of(STARLING_ALL_REDUCE, 16)).opens);
  // A factor is the owner's alone.
  starling_operation scaled = ranks.call_of(STARLING_ALL_REDUCE, large);
  scaled.reduce_op = STARLING_PREMUL_SUM;
  scaled.scalar = 2;
  EXPECT_EQ(ranks.lowered(0, scaled).plan->protocol(), Protocol::kSlots);
}

// Calls that look alike, but for the rank, the place, the size or the tables, are told apart.
TEST(Lowering, RemembersWhatPeersTouchOfEarlierCalls) {
  OnGpus ranks, forgetful;
  ChosenPlans chosen;
  ranks.chosen = &chosen;
  const size_t large = size_t(1) << 20;
  const std::array<size_t, 2> even = {large, large}, odd = {large + 5, large - 5};
  std::vector<starling_operation> calls;
  for (const auto kind :
       {STARLING_ALL_REDUCE, STARLING_ALL_GATHER, STARLING_REDUCE_SCATTER, STARLING_BROADCAST,
        STARLING_ALL_TO_ALL, STARLING_GATHER, STARLING_SEND, STARLING_RECV})
    for (const size_t count : {large, 2 * large}) calls.push_back(ranks.call_of(kind, count));
  starling_operation in_place = ranks.call_of(STARLING_ALL_REDUCE, large);
  in_place.input = in_place.output;
  calls.push_back(in_place);
  for (const auto* counts : {&even, &odd}) {
    starling_operation exchange = ranks.call_of(STARLING_ALL_TO_ALL, 0);
    exchange.input_counts = exchange.output_counts = counts->data();
    calls.push_back(exchange);
    starling_operation gather = ranks.call_of(STARLING_ALL_GATHER, 0);
    gather.output_counts = counts->data();
    calls.push_back(gather);
  }
  uint32_t touched = 0;
  for (uint32_t round = 0; round < 3; ++round)
    for (starling_operation call : calls)
      for (uint32_t rank = 0; rank < 2; ++rank) {
        if ((call.kind == STARLING_SEND || call.kind == STARLING_RECV) &&
            (call.kind == STARLING_RECV) != (rank == 1))
          continue;
        const Lowered known = ranks.lowered(rank, call), fresh = forgetful.lowered(rank, call);
        for (uint32_t k = 0; k < 2; ++k) {
          EXPECT_EQ(known.offered.of[k].begin, fresh.offered.of[k].begin)
              << text_of(known) << ", rank " << rank;
          EXPECT_EQ(known.offered.of[k].end, fresh.offered.of[k].end) << text_of(known) << ", rank " << rank;
          touched += known.offered.of[k].end != 0;
        }
      }
  EXPECT_GT(touched, 3 * calls.size() / 2);
}

constexpr const char* kOutOfScratch = R"(starling-plan 1
name out_of_scratch
collective send_recv
ranks 2
root 0
in_place 0
protocol pull
chunks_per_group 1
groups 1 1
rank 0 scratch 1
block 0
0 copy input[0] -> scratch[0] size input[0]
1 send scratch[0] -> >1.0 size input[0]
rank 1 scratch 0
block 0
0 recv <0.0 -> output[0] size output[0]
)";

TEST(Lowering, RefusesToReadScratchOfAnotherProcess) {
  OnGpus ranks;
  ranks.added.add(std::make_shared<const Plan>(plan_from_text(kOutOfScratch)), SizeRange{});
  starling_operation call = ranks.call_of(STARLING_SEND, 1 << 20);
  call.algorithm = "out_of_scratch";
  for (uint32_t rank : {0u, 1u}) try {
      call.kind = rank == 0 ? STARLING_SEND : STARLING_RECV;
      ranks.lowered(rank, call);
      FAIL() << "rank " << rank << " took it";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::unsupported);
      EXPECT_NE(std::string(error.what()).find("out_of_scratch"), std::string::npos) << error.what();
    }
}

// Whom each rank sends to first.
std::vector<uint16_t> first_peers(const Plan& plan) {
  std::vector<uint16_t> peers;
  for (uint32_t rank = 0; rank < plan.rank_count(); ++rank) {
    const PlanView view = plan.view(rank);
    peers.push_back(uint16_t(view.connections()[view.blocks()[0].send_first].peer));
  }
  return peers;
}

// Ranks of two hosts in turns: 0, 2, 4 and 1, 3, 5. A ring comes to the second on the rail on which it leaves
// the first; halving-doubling joins like to like.
TEST(Lowering, GivesRingsAnOrderOfTheirOwnBetweenHosts) {
  PlanCache plans;
  const std::array<HostOfRank, 6> ranks = {{{7, 0}, {9, 1}, {7, 0}, {9, 1}, {7, 0}, {9, 1}}};
  const HostLayout hosts = host_layout(ranks);
  LoweringContext context{0, 6, 1, &plans};
  context.hosts = &hosts;
  float buffer[6];
  starling_operation call{};
  call.struct_bytes = sizeof call;
  call.kind = STARLING_ALL_REDUCE;
  call.data_type = STARLING_FLOAT32;
  call.input = call.output = buffer;
  call.count = 6;
  call.algorithm = "ring";
  EXPECT_EQ(first_peers(*lower(context, call).plan), (std::vector<uint16_t>{2, 0, 4, 1, 5, 3}));
  call.algorithm = "halving_doubling";
  const uint64_t hash = lower(context, call).plan->hash();
  PlanRequest request{Collective::kAllReduce, 6, 0, 1, true};
  request.order = {0, 2, 4, 1, 3, 5};
  EXPECT_EQ(hash, generate("halving_doubling", request).hash());
}

// It takes the hosts for its nodes; the next rank is the next one, wherever it is.
TEST(Lowering, GivesAllToNextTheHostsAndNoOrder) {
  PlanCache plans;
  for (const bool in_turns : {true, false}) {
    std::array<HostOfRank, 6> ranks{};
    for (uint32_t r = 0; r < 6; ++r) ranks[r] = {in_turns ? r % 3 : r / 2, in_turns ? r % 3 : r / 2};
    const HostLayout hosts = host_layout(ranks);
    LoweringContext context{0, 6, 1, &plans};
    float buffer[12];
    starling_operation call{};
    call.struct_bytes = sizeof call;
    call.kind = STARLING_CUSTOM;
    call.data_type = STARLING_FLOAT32;
    call.input = buffer;
    call.output = buffer + 6;
    call.count = 6;
    call.algorithm = "all_to_next";
    EXPECT_EQ(lower(context, call).plan->hash(), generate("all_to_next:2", {Collective::kCustom, 6}).hash());
    context.hosts = &hosts;
    EXPECT_EQ(lower(context, call).plan->hash(), generate("all_to_next:3", {Collective::kCustom, 6}).hash());
  }
}

}  // namespace
}  // namespace starling
