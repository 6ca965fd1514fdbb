// Goal: the built-in algorithms keep what generate.h promises, for every rank count up to 64.
// Method: generate (which verifies) over a sweep of requests and look at the facts; misuse is answered with a
// remedy.
#include "plan/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "plan/all_plans.h"
#include "plan/builder.h"
#include "plan/cache.h"
#include "plan/choice.h"

namespace starling {
namespace {

void expect_promises(const BuiltIn& built_in) {
  SCOPED_TRACE(built_in.name());
  const Plan plan = generate(built_in.algorithm, built_in.request);
  for (std::uint32_t rank = 0; rank < plan.rank_count(); ++rank) {
    const PlanHeader& header = *plan.header(rank);
    EXPECT_LE(header.minimum_slots, 2);
    EXPECT_EQ(header.canonical, !built_in.passes_parts_on());
    EXPECT_EQ(header.uniform_only, built_in.passes_parts_on());
    EXPECT_LE(header.largest_chunks, 64);
    EXPECT_EQ(header.block_count, built_in.request.block_count);
    EXPECT_EQ(header.hash, plan.hash());
    EXPECT_EQ(header.rank, rank);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(&header) % 8, 0u);
  }
}

TEST(Generate, KeepsItsPromises) {
  for (const BuiltIn& built_in : built_ins({1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 17, 33}, {1, 3}))
    expect_promises(built_in);
}

TEST(Generate, TakesSixtyFourRanksAndBlocks) {
  for (const BuiltIn& built_in : built_ins({64}, {1})) expect_promises(built_in);
  for (const BuiltIn& built_in : built_ins({2}, {64})) expect_promises(built_in);
}

TEST(Generate, EveryCollectiveHasAnAlgorithmForAnyRanks) {
  for (std::uint32_t c = 0; c < kCollectiveCount; ++c) {
    const auto collective = static_cast<Collective>(c);
    ASSERT_FALSE(algorithms_for(collective).empty());
    EXPECT_TRUE(algorithm_takes(algorithms_for(collective).front(), collective,
                                collective == Collective::kSendRecv ? 2 : 1024));
  }
}

TEST(Generate, IsDeterministicAndPlansDifferInTheirHash) {
  const PlanRequest request{Collective::kAllReduce, 4, 0, 2, false};
  EXPECT_EQ(generate("ring", request).hash(), generate("ring", request).hash());
  PlanRequest other = request;
  other.block_count = 3;
  EXPECT_NE(generate("ring", request).hash(), generate("ring", other).hash());
  EXPECT_NE(generate("ring", request).hash(), generate("two_shot", request).hash());
}

std::string refusal(std::string_view algorithm, const PlanRequest& request) {
  try {
    generate(algorithm, request);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.what();
  }
  return "";
}

TEST(Generate, MisuseNamesTheRemedy) {
  EXPECT_NE(refusal("rong", {}).find("ring"), std::string::npos);
  const std::string many = refusal("one_shot", {Collective::kAllReduce, 17});
  EXPECT_NE(many.find("at most 16 ranks"), std::string::npos) << many;
  EXPECT_EQ(many.find("two_shot"), std::string::npos) << many;  // which would not take them either
  EXPECT_NE(refusal("ring", {Collective::kAllReduce, 0}), "");
  EXPECT_NE(refusal("ring", {Collective::kAllReduce, 4, 0, 0}), "");
  EXPECT_NE(refusal("ring", {Collective::kAllReduce, 4, 0, 65}), "");
  EXPECT_NE(refusal("chain", {Collective::kBroadcast, 4, 4}).find("root 4"), std::string::npos);
  EXPECT_NE(refusal("direct", {Collective::kSendRecv, 3}), "");
  EXPECT_NE(refusal("ring", {Collective::kCustom, 3}), "");
}

TEST(Generate, NodesStandBehindAColon) {
  for (const char* name : {"hierarchical", "hierarchical:2", "hierarchical:3", "hierarchical:6"})
    EXPECT_TRUE(algorithm_takes(name, Collective::kAllReduce, 6)) << name;
  for (const char* name : {"hierarchical:4", "hierarchical:1", "hierarchical:0",
                           "hierarchical:", "hierarchical:x", "hierarchical:12", "ring:2"}) {
    EXPECT_FALSE(algorithm_takes(name, Collective::kAllReduce, 6)) << name;
    EXPECT_NE(refusal(name, {Collective::kAllReduce, 6}), "") << name;
  }
  const auto hash = [](const char* name) { return generate(name, {Collective::kAllReduce, 6}).hash(); };
  EXPECT_EQ(hash("hierarchical"), hash("hierarchical:2"));
  EXPECT_NE(hash("hierarchical:2"), hash("hierarchical:3"));
  EXPECT_NE(refusal("hierarchical:4", {Collective::kAllReduce, 6}).find("6 ranks"), std::string::npos);
}

// Chunks that each rank sends to ranks of other nodes; ranks of one node follow each other.
std::vector<std::uint32_t> chunks_that_cross(const Plan& plan, std::uint32_t nodes) {
  const std::uint32_t size = plan.rank_count() / nodes;
  std::vector<std::uint32_t> chunks(plan.rank_count(), 0);
  for (std::uint32_t r = 0; r < plan.rank_count(); ++r) {
    const PlanView view = plan.view(r);
    for (std::uint32_t b = 0; b < view.header->block_count; ++b)
      for (std::uint32_t k = 0; k < view.blocks()[b].instruction_count; ++k) {
        const Instruction& i = view.instructions()[view.blocks()[b].instruction_first + k];
        for (std::uint32_t s = 0; s < i.send_count; ++s) {
          const Connection to = view.connections()[view.blocks()[b].send_first + i.send_first + s];
          if (to.peer / size != r / size) chunks[r] += i.chunks;
        }
      }
  }
  return chunks;
}

TEST(Generate, EachPartCrossesIntoANodeOnce) {
  for (const Collective collective : {Collective::kAllGather, Collective::kReduceScatter}) {
    const Plan plan = generate("rails:3", {collective, 12, 0, 2});
    for (const std::uint32_t chunks : chunks_that_cross(plan, 3)) EXPECT_EQ(chunks, 2u * 2u);
  }
}

TEST(Generate, OneRankSpeaksForANode) {
  for (const Collective collective : {Collective::kAllReduce, Collective::kBroadcast, Collective::kReduce}) {
    const bool rooted = collective != Collective::kAllReduce;
    const std::vector<std::uint32_t> chunks =
        chunks_that_cross(generate("leaders:3", {collective, 12, rooted ? 6u : 0u}), 3);
    EXPECT_EQ(std::accumulate(chunks.begin(), chunks.end(), 0u), rooted ? 2u : 6u);
    // The root leads its own node, the first rank any other.
    EXPECT_EQ(chunks[rooted ? 6 : 4] + chunks[0] + chunks[8], rooted ? 2u : 6u);
  }
}

TEST(Generate, AnOrderPutsRanksInOthersPlaces) {
  const std::vector<std::uint16_t> order = {4, 1, 0, 5, 3, 2};
  for (const BuiltIn& built_in : built_ins({6}, {2})) {
    SCOPED_TRACE(built_in.name());
    PlanRequest request = built_in.request;
    request.order = order;
    const Plan plan = generate(built_in.algorithm, request);  // and proves it
    EXPECT_EQ(plan.root(), request.root);
    if (built_in.passes_parts_on() || request.collective == Collective::kCustom) {
      EXPECT_EQ(plan.hash(), generate(built_in.algorithm, built_in.request).hash());
    }
  }
  PlanRequest request{Collective::kAllGather, 6};
  request.order = order;
  const Plan ring = generate("ring", request);
  for (std::size_t p = 0; p < order.size(); ++p) {
    const PlanView view = ring.view(order[p]);
    const BlockPlan& block = view.blocks()[0];
    ASSERT_EQ(block.send_count, 1);
    EXPECT_EQ(view.connections()[block.send_first].peer, order[(p + 1) % order.size()]);
  }
}

// Which order of hosts' ranks a plan is given hangs on it (comm/lowering.cc).
TEST(Generate, SaysWhichPlansAreOfNeighbours) {
  for (const BuiltIn& built_in : built_ins({6}, {1})) {
    const Collective collective = built_in.request.collective;
    if (collective == Collective::kSendRecv || collective == Collective::kCustom) continue;  // take no order
    const Plan plan = generate(built_in.algorithm, built_in.request);
    bool neighbours = true;
    for (std::uint32_t r = 0; r < 6; ++r) {
      const PlanView view = plan.view(r);
      for (std::uint32_t s = 0; s < view.blocks()[0].send_count; ++s) {
        const std::uint32_t ahead = (view.connections()[view.blocks()[0].send_first + s].peer + 6 - r) % 6;
        neighbours &= ahead == 1 || ahead == 5;
      }
    }
    EXPECT_EQ(is_of_neighbours(built_in.algorithm), neighbours) << built_in.name();
  }
  EXPECT_TRUE(is_of_neighbours("ring@65536"));
}

TEST(Generate, AnOrderNamesEachRankOnce) {
  PlanBuilder builder("x", Geometry::standard(Collective::kAllReduce, 3, 0, false, 1));
  for (const std::vector<std::uint16_t>& order :
       {std::vector<std::uint16_t>{0, 1}, std::vector<std::uint16_t>{0, 1, 1},
        std::vector<std::uint16_t>{0, 1, 3}})
    EXPECT_THROW(builder.rename_ranks(order), Error);
}

TEST(Generate, KnowsNodesFromItsRequest) {
  PlanRequest request{Collective::kAllReduce, 6};
  request.node_count = 3;
  EXPECT_EQ(generate("hierarchical", request).hash(),
            generate("hierarchical:3", {Collective::kAllReduce, 6}).hash());
  EXPECT_EQ(generate("hierarchical:2", request).hash(),
            generate("hierarchical:2", {Collective::kAllReduce, 6}).hash());
}

TEST(Generate, WideSlicesAreCutIntoMessages) {
  for (const auto& [name, collective, ranks] : {std::tuple{"halving_doubling", Collective::kAllReduce, 257u},
                                                std::tuple{"hierarchical:130", Collective::kAllReduce, 260u},
                                                std::tuple{"two_step:2", Collective::kAllToAll, 140u},
                                                std::tuple{"all_to_next:2", Collective::kCustom, 260u},
                                                std::tuple{"three_step:3", Collective::kAllToAll, 30u}}) {
    const Plan plan = generate(name, {collective, ranks});
    EXPECT_LE(plan.header(0)->largest_chunks, 64) << name;
    EXPECT_LE(plan.header(0)->minimum_slots, 2) << name;
  }
}

TEST(PlanCache, SharesOnePlanAmongThreads) {
  PlanCache cache;
  const PlanRequest request{Collective::kAllGather, 5, 0, 1, true};
  std::vector<std::shared_ptr<const Plan>> plans(8);
  {
    std::vector<std::jthread> threads;
    for (auto& plan : plans) threads.emplace_back([&] { plan = cache.get("ring", request); });
  }
  for (const auto& plan : plans) EXPECT_EQ(plan, plans[0]);
  EXPECT_EQ(cache.size(), 1u);
  EXPECT_THROW(cache.get("none", request), Error);
  EXPECT_EQ(cache.size(), 1u);
}

TEST(Choice, IsAlwaysAnAlgorithmThatTakesTheRanks) {
  for (std::uint32_t c = 0; c < kCollectiveCount; ++c) {
    const auto collective = static_cast<Collective>(c);
    if (collective == Collective::kCustom) continue;
    for (const std::uint32_t ranks : {1u, 2u, 16u, 17u, 300u}) {
      if (collective == Collective::kSendRecv && ranks > 2) continue;
      for (const std::uint64_t bytes :
           {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 16, std::uint64_t{1} << 40}) {
        const Choice choice = choose({collective, ranks, bytes, DataType::kFloat32, 4});
        EXPECT_TRUE(algorithm_takes(choice.algorithm, collective, ranks)) << choice.algorithm;
        EXPECT_GE(choice.block_count, 1u);
        EXPECT_LE(choice.block_count, 4u);
      }
    }
  }
}

TEST(Choice, PullsOnCpusWhatAllSendAndReceiveAlike) {
  const auto chosen = [](Collective collective, std::uint64_t bytes, bool pulls) {
    ChoiceRequest request{collective, 2, bytes, DataType::kFloat32, 1};
    request.pulls = pulls;
    request.pulling_pays = true;
    return choose(request).algorithm;
  };
  constexpr std::uint64_t kMiB = 1 << 20;
  EXPECT_EQ(chosen(Collective::kAllGather, kMiB, true), "all_pairs_pull");
  EXPECT_EQ(chosen(Collective::kAllToAll, kMiB, true), "pairwise_pull");
  EXPECT_EQ(chosen(Collective::kSendRecv, kMiB, true), "direct_pull");
  EXPECT_EQ(chosen(Collective::kSendRecv, kMiB / 16, true),
            "direct");  // fits a slot: over before its receive
  for (const Collective collective : {Collective::kAllGather, Collective::kAllToAll, Collective::kSendRecv}) {
    EXPECT_EQ(chosen(collective, kMiB, false), chosen(collective, 16 * kMiB, false));
    EXPECT_EQ(chosen(collective, 16 * kMiB, true), chosen(collective, 16 * kMiB, false));
  }
  for (const Collective collective : {Collective::kAllReduce, Collective::kGather, Collective::kBroadcast})
    EXPECT_EQ(chosen(collective, kMiB, true), chosen(collective, kMiB, false));
}

TEST(Choice, KnowsHosts) {
  ChoiceRequest request{Collective::kAllReduce, 4, 1 << 20, DataType::kFloat32, 1};
  const auto chosen = [&](Collective collective, std::uint64_t bytes) {
    request.collective = collective;
    request.bytes = bytes;
    return choose(request).algorithm;
  };
  constexpr Collective kCut[] = {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter};
  for (const Collective collective : kCut) EXPECT_EQ(chosen(collective, 1 << 20), "ring");
  request.equal_hosts = true;
  for (const Collective collective : kCut) {
    EXPECT_EQ(chosen(collective, 1 << 20), "rails");
    EXPECT_NE(chosen(collective, 8), "rails");  // fewer steps, not fewer bytes
  }
  EXPECT_EQ(chosen(Collective::kBroadcast, 1 << 20), "chain");
  request.on_gpu = true;
  request.across_hosts = true;
  EXPECT_EQ(chosen(Collective::kAllReduce, 1 << 20), "rails");
  // Unequal hosts: what crosses them goes by slots all the same.
  request.equal_hosts = false;
  request.pulls = request.one_process = true;
  EXPECT_EQ(chosen(Collective::kAllReduce, 8), "one_shot");
  request.across_hosts = false;
  EXPECT_EQ(chosen(Collective::kAllReduce, 8), "one_shot_packets");
  request.on_gpu = false;
  for (const Collective collective : {Collective::kBroadcast, Collective::kReduce}) {
    request.across_hosts = false;
    EXPECT_EQ(chosen(collective, 8), "direct_packets");
    request.across_hosts = true;
    EXPECT_EQ(chosen(collective, 8), "direct");
  }
}

TEST(Choice, ProcessesOnGpusReadWhereThatIsFaster) {
  ChoiceRequest request{Collective::kAllReduce, 2, 0, DataType::kFloat32, 32};
  request.on_gpu = request.pulls = true;
  const auto reads = [&](Collective collective, std::uint64_t mebibytes, bool if_faster) {
    request.collective = collective;
    request.bytes = mebibytes << 20;
    request.pulls_if_faster = if_faster;
    const std::string_view algorithm = choose(request).algorithm;
    return without_pull(algorithm) != algorithm;
  };
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter, Collective::kBroadcast,
        Collective::kAllToAll, Collective::kReduce, Collective::kSendRecv}) {
    const std::uint64_t first = collective == Collective::kAllReduce  ? 1
                                : collective == Collective::kSendRecv ? 4  // as fast by packets there
                                                                      : 2;
    EXPECT_FALSE(reads(collective, first / 2, true));
    EXPECT_TRUE(reads(collective, first, true));
    EXPECT_TRUE(reads(collective, 64, true));
    EXPECT_TRUE(reads(collective, first, false));  // asked for, or threads
  }
  request.rank_count = 4;
  EXPECT_FALSE(reads(Collective::kReduce, 64, true)) << "all buffers over the root's link";
  EXPECT_TRUE(reads(Collective::kBroadcast, 64, true));
  for (const Collective collective : {Collective::kGather, Collective::kScatter})
    EXPECT_FALSE(reads(collective, 1024, true)) << "was not measured";
}

TEST(Choice, GpusPutWhereThatIsFaster) {
  const auto chosen = [](Collective collective, std::uint32_t ranks, std::uint64_t kib, bool in_place = false,
                         bool addresses = true) {
    ChoiceRequest request{collective, ranks, kib << 10, DataType::kFloat32, 32, in_place};
    request.on_gpu = request.pulls = request.pulls_if_faster = true;
    request.one_process = addresses;
    return choose(request).algorithm;
  };
  EXPECT_EQ(chosen(Collective::kAllReduce, 4, 1024), "two_shot_packets");
  EXPECT_EQ(chosen(Collective::kAllReduce, 4, 2048), "two_shot_put");
  EXPECT_EQ(chosen(Collective::kAllReduce, 4, 12288), "two_shot_put");
  EXPECT_EQ(chosen(Collective::kAllReduce, 4, 16384), "ring_put@262144");
  EXPECT_EQ(chosen(Collective::kAllReduce, 4, 65536, true), "ring_put@524288");
  EXPECT_EQ(chosen(Collective::kAllReduce, 4, 65536), "ring_put@1048576");
  EXPECT_EQ(chosen(Collective::kAllReduce, 4, 1048576), "ring_put@1048576");
  EXPECT_EQ(chosen(Collective::kAllReduce, 4, 1048576, true), "ring_put@1048576");
  EXPECT_EQ(chosen(Collective::kAllReduce, 4, 65536, false, false), "two_shot_pull");
  EXPECT_EQ(chosen(Collective::kAllReduce, 10, 32768), "two_shot_put");  // more places than a ring has
  EXPECT_EQ(chosen(Collective::kAllReduce, 10, 65536), "two_shot_pull");
  EXPECT_EQ(chosen(Collective::kAllReduce, 2, 65536), "one_shot_pull");
  EXPECT_EQ(chosen(Collective::kAllReduce, 4, 2048, false, false), "two_shot_pull");
  EXPECT_EQ(chosen(Collective::kAllReduce, 17, 2048), "ring");  // more than one instruction adds
  EXPECT_EQ(chosen(Collective::kAllReduce, 2, 512), "one_shot_packets");
  EXPECT_EQ(chosen(Collective::kAllReduce, 2, 1024), "one_shot_pull");
  EXPECT_EQ(chosen(Collective::kAllReduce, 2, 1024, true), "two_shot_put");
  EXPECT_EQ(chosen(Collective::kAllReduce, 2, 2048, true), "two_shot_put");
  EXPECT_EQ(chosen(Collective::kAllReduce, 2, 65536, true), "two_shot_pull");
  EXPECT_EQ(chosen(Collective::kBroadcast, 4, 256), "direct_packets");
  EXPECT_EQ(chosen(Collective::kBroadcast, 4, 512), "split_put");
  EXPECT_EQ(chosen(Collective::kBroadcast, 2, 512), "direct_packets");
  EXPECT_EQ(chosen(Collective::kBroadcast, 2, 65536), "direct_pull");
  EXPECT_EQ(chosen(Collective::kReduce, 4, 2048), "split_put");
  EXPECT_EQ(chosen(Collective::kReduce, 4, 131072), "chain_put@262144");
  EXPECT_EQ(chosen(Collective::kReduce, 4, 131072, false, false), "chain");
  EXPECT_EQ(chosen(Collective::kReduce, 2, 2048), "direct_pull");
  EXPECT_EQ(chosen(Collective::kAllGather, 2, 2048), "ring_put@262144");
  EXPECT_EQ(chosen(Collective::kAllGather, 2, 4096), "ring_put@262144");
  EXPECT_EQ(chosen(Collective::kAllGather, 2, 8192), "ring_put@524288");
  EXPECT_EQ(chosen(Collective::kAllGather, 2, 8192, false, false), "all_pairs_pull");
  EXPECT_EQ(chosen(Collective::kAllGather, 4, 16384), "all_pairs_pull");
  EXPECT_EQ(chosen(Collective::kAllGather, 4, 32768), "ring_put@1048576");
  EXPECT_EQ(chosen(Collective::kAllGather, 10, 32768), "ring_put@1048576");
  EXPECT_EQ(chosen(Collective::kAllGather, 18, 32768), "all_pairs_pull");  // more places than a ring has
  EXPECT_EQ(chosen(Collective::kAllToAll, 2, 4096), "pairwise_put@1048576");
  EXPECT_EQ(chosen(Collective::kAllToAll, 2, 16384), "pairwise_pull");
  EXPECT_EQ(chosen(Collective::kAllToAll, 2, 32768), "pairwise_put@1048576");
  EXPECT_EQ(chosen(Collective::kAllToAll, 4, 32768), "pairwise_pull");
  EXPECT_EQ(chosen(Collective::kAllToAll, 2, 32768, true), "pairwise_pull");
  EXPECT_EQ(chosen(Collective::kSendRecv, 2, 512), "direct_packets");
  EXPECT_EQ(chosen(Collective::kSendRecv, 2, 1024), "direct_put@1048576");
  EXPECT_EQ(chosen(Collective::kSendRecv, 2, 2048, false, false), "direct_packets");
}

// A block keeps the program's kernels from a multiprocessor.
TEST(Choice, TwoGpusGiveHalfTheBlocksToWhatLastsLong) {
  ChoiceRequest request{Collective::kAllReduce, 2, 0, DataType::kFloat32, 32};
  request.on_gpu = request.pulls = request.pulls_if_faster = request.one_process = true;
  const auto blocks = [&](Collective collective, std::uint64_t mebibytes, std::uint64_t more = 0) {
    request.collective = collective;
    request.bytes = (mebibytes << 20) + more;
    return choose(request).block_count;
  };
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter}) {
    EXPECT_EQ(blocks(collective, 16), 32u);
    EXPECT_EQ(blocks(collective, 16, 1), 16u);
    EXPECT_EQ(blocks(collective, 512), 16u);
    EXPECT_EQ(blocks(collective, 512, 1), 32u);
  }
  EXPECT_EQ(blocks(Collective::kBroadcast, 2), 16u);
  EXPECT_EQ(blocks(Collective::kBroadcast, 512), 32u);
  EXPECT_EQ(blocks(Collective::kSendRecv, 2), 16u);
  EXPECT_EQ(blocks(Collective::kSendRecv, 128), 32u);
  EXPECT_EQ(blocks(Collective::kReduce, 64), 32u);
  EXPECT_EQ(blocks(Collective::kAllToAll, 64), 32u);
  request.in_place = true;
  EXPECT_EQ(blocks(Collective::kAllReduce, 4), 32u);
  EXPECT_EQ(blocks(Collective::kAllReduce, 4, 1), 16u);
  request.data_type = DataType::kBfloat16;
  EXPECT_EQ(blocks(Collective::kAllReduce, 4), 32u);
  EXPECT_EQ(blocks(Collective::kAllReduce, 32), 16u);
  EXPECT_EQ(blocks(Collective::kAllReduce, 32, 1), 32u);
  for (const Collective sums : {Collective::kAllReduce, Collective::kReduceScatter}) {
    EXPECT_EQ(blocks(sums, 128), 32u);
    EXPECT_EQ(blocks(sums, 128, 1), 16u);
    EXPECT_EQ(blocks(sums, 512), 16u);
    EXPECT_EQ(blocks(sums, 512, 1), 32u);
  }
  EXPECT_EQ(blocks(Collective::kReduceScatter, 32), 32u);
  EXPECT_EQ(blocks(Collective::kAllGather, 64), 16u);
  request.in_place = false;
  EXPECT_EQ(blocks(Collective::kAllReduce, 32), 32u);
  request.in_place = true;
  request.data_type = DataType::kFloat32;
  request.rank_count = 4;
  for (const Collective collective : {Collective::kAllReduce, Collective::kAllGather, Collective::kBroadcast})
    EXPECT_EQ(blocks(collective, 64), 32u) << "was not measured";
  request.rank_count = 2;
  request.across_hosts = true;
  EXPECT_EQ(blocks(Collective::kSendRecv, 2), 32u) << "nothing is put there";
}

// What is read in one shot must stay until the peer has read it; and two ranks alone add nothing twice.
TEST(Choice, TwoGpusAddInOneShotWhereNothingIsOverwritten) {
  ChoiceRequest request{Collective::kAllReduce, 2, 4 << 20, DataType::kFloat32, 32};
  request.on_gpu = request.pulls = true;
  EXPECT_EQ(choose(request).algorithm, "one_shot_pull");
  request.in_place = true;
  EXPECT_EQ(choose(request).algorithm, "two_shot_pull");
  request.in_place = false;
  request.rank_count = 4;
  EXPECT_EQ(choose(request).algorithm, "two_shot_pull");
  request.bytes = 512 << 10;
  EXPECT_EQ(choose(request).algorithm, "two_shot_packets");
  request.rank_count = 2;
  EXPECT_EQ(choose(request).algorithm, "one_shot_packets");
  request.collective = Collective::kAllToAll;
  request.bytes = 4 << 20;
  EXPECT_EQ(choose(request).algorithm, "pairwise_pull");
  request.in_place = true;
  EXPECT_EQ(choose(request).algorithm, "pairwise_packets");
}

// Lanes that may not touch peers' buffers take it instead (comm/lowering.cc).
TEST(Generate, WhatTouchesPeersBuffersHasAnAlgorithmThatDoesNot) {
  for (const BuiltIn& built_in : built_ins({1, 2, 5, 16, 17}, {1})) {
    const std::string_view plain = without_pull(built_in.algorithm);
    ASSERT_TRUE(algorithm_takes(plain, built_in.request.collective, built_in.request.rank_count))
        << built_in.name();
    EXPECT_NE(generate(plain, built_in.request).protocol(), Protocol::kPull) << built_in.name();
  }
}

// In place each rank writes over what others would read.
TEST(Generate, InPlaceAOneShotPullsNothing) {
  PlanRequest request{Collective::kAllReduce, 2, 0, 1, true};
  EXPECT_EQ(generate("one_shot_pull", request).protocol(), Protocol::kSlots);
  request.in_place = false;
  EXPECT_EQ(generate("one_shot_pull", request).protocol(), Protocol::kPull);
}

TEST(Choice, KnowsThreadsTypesAndCores) {
  ChoiceRequest request{Collective::kAllReduce, 4, 1 << 20, DataType::kFloat32, 1};
  EXPECT_EQ(choose(request).algorithm, "ring");
  request.pulls = true;  // processes, and slots are faster there
  EXPECT_EQ(choose(request).algorithm, "ring");
  request.one_process = true;
  EXPECT_EQ(choose(request).algorithm, "two_shot_pull");
  request.rank_count = 17;  // more than one instruction adds
  EXPECT_EQ(choose(request).algorithm, "ring");
  request.rank_count = 4;
  request.bytes = 4096;
  EXPECT_EQ(choose(request).algorithm, "one_shot");
  request.data_type = DataType::kBfloat16;
  EXPECT_EQ(choose(request).algorithm, "two_shot");
  request.data_type = DataType::kFloat32;
  request.rank_count = 16;
  request.bytes = 4097;
  EXPECT_EQ(choose(request).algorithm, "two_shot");
}

}  // namespace
}  // namespace starling
