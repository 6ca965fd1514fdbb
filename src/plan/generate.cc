#include "plan/generate.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/error.h"
#include "plan/algorithms.h"
#include "plan/builder.h"

namespace starling {
namespace {

// How many chunks a group has.
enum class Cut {
  kWhole,           // one: blocks share the work in another way
  kBlocks,          // one per block
  kBlocksTwice,     // two per block
  kBlocksAndPower,  // one per block and rank, of the largest power of two
  kBlocksAndRanks,  // one per block and rank
  kBlocksAndOthers,  // one per block and rank but the root
  kBlocksAndPlaces,  // one per block and rank of a node
};

struct Algorithm {
  Collective collective;
  std::string_view name;
  std::uint32_t rank_limit;
  Cut cut;
  void (*generate)(PlanBuilder&, const PlanRequest&);
  Protocol protocol = Protocol::kSlots;
  bool knows_nodes = false;
};

constexpr std::uint32_t kAnyRanks = kMaxPlanRanks;
constexpr std::uint32_t kFanInRanks = kMaxFan + 1;  // one instruction reduces the parts of all ranks
constexpr std::uint32_t kPutRingRanks =
    kMaxLent / 2 + 1;  // each part comes twice, as a sum and as the result

using enum Collective;
constexpr Protocol kPackets = Protocol::kPackets;
constexpr Protocol kPull = Protocol::kPull;
constexpr Protocol kSlots = Protocol::kSlots;
// The most general algorithm of a collective stands first.
constexpr Algorithm kAlgorithms[] = {
    {kAllReduce, "ring", kAnyRanks, Cut::kBlocksAndRanks, algorithms::ring_all_reduce},
    {kAllReduce, "one_shot", kFanInRanks, Cut::kBlocks, algorithms::one_shot_all_reduce},
    {kAllReduce, "two_shot", kFanInRanks, Cut::kBlocksAndRanks, algorithms::two_shot_all_reduce},
    {kAllReduce, "one_shot_packets", kFanInRanks, Cut::kBlocks, algorithms::one_shot_all_reduce, kPackets},
    {kAllReduce, "two_shot_packets", kFanInRanks, Cut::kBlocksAndRanks, algorithms::two_shot_all_reduce,
     kPackets},
    {kAllReduce, "one_shot_pull", kFanInRanks, Cut::kBlocks, algorithms::one_shot_all_reduce, kPull},
    {kAllReduce, "two_shot_pull", kFanInRanks, Cut::kBlocksAndRanks, algorithms::two_shot_all_reduce, kPull},
    {kAllReduce, "two_shot_put", kFanInRanks, Cut::kBlocksAndRanks, algorithms::two_shot_put_all_reduce,
     kPull},
    {kAllReduce, "ring_put", kPutRingRanks, Cut::kBlocksAndRanks, algorithms::ring_put_all_reduce, kPull},
    {kAllReduce, "halving_doubling", kAnyRanks, Cut::kBlocksAndPower,
     algorithms::halving_doubling_all_reduce},
    {kAllReduce, "double_tree", kAnyRanks, Cut::kBlocksTwice, algorithms::double_tree_all_reduce},
    {kAllReduce, "hierarchical", kAnyRanks, Cut::kBlocksAndRanks, algorithms::hierarchical_all_reduce, kSlots,
     true},
    {kAllReduce, "rails", kAnyRanks, Cut::kBlocksAndRanks, algorithms::rails_all_reduce, kSlots, true},
    {kAllReduce, "leaders", kFanInRanks, Cut::kBlocks, algorithms::leaders_all_reduce, kSlots, true},
    {kAllGather, "ring", kAnyRanks, Cut::kBlocks, algorithms::ring_all_gather},
    {kAllGather, "all_pairs", kAnyRanks, Cut::kBlocks, algorithms::all_pairs_all_gather},
    {kAllGather, "all_pairs_packets", kAnyRanks, Cut::kBlocks, algorithms::all_pairs_all_gather, kPackets},
    {kAllGather, "all_pairs_pull", kAnyRanks, Cut::kBlocks, algorithms::all_pairs_all_gather, kPull},
    {kAllGather, "all_pairs_put", kAnyRanks, Cut::kBlocks, algorithms::all_pairs_put_all_gather, kPull},
    {kAllGather, "ring_put", kMaxLent + 1, Cut::kBlocks, algorithms::ring_put_all_gather, kPull},
    {kAllGather, "rails", kAnyRanks, Cut::kBlocks, algorithms::rails_all_gather, kSlots, true},
    {kReduceScatter, "ring", kAnyRanks, Cut::kBlocks, algorithms::ring_reduce_scatter},
    {kReduceScatter, "all_pairs", kFanInRanks, Cut::kBlocks, algorithms::all_pairs_reduce_scatter},
    {kReduceScatter, "all_pairs_packets", kFanInRanks, Cut::kBlocks, algorithms::all_pairs_reduce_scatter,
     kPackets},
    {kReduceScatter, "all_pairs_pull", kFanInRanks, Cut::kBlocks, algorithms::all_pairs_reduce_scatter,
     kPull},
    {kReduceScatter, "ring_put", kMaxLent + 1, Cut::kBlocks, algorithms::ring_put_reduce_scatter, kPull},
    {kReduceScatter, "rails", kAnyRanks, Cut::kBlocks, algorithms::rails_reduce_scatter, kSlots, true},
    {kBroadcast, "chain", kAnyRanks, Cut::kBlocks, algorithms::chain_broadcast},
    {kBroadcast, "chain_packets", kAnyRanks, Cut::kBlocks, algorithms::chain_broadcast, kPackets},
    {kBroadcast, "chain_pull", kAnyRanks, Cut::kBlocks, algorithms::chain_broadcast, kPull},
    {kBroadcast, "chain_put", kAnyRanks, Cut::kBlocks, algorithms::chain_put_broadcast, kPull},
    {kBroadcast, "direct", kAnyRanks, Cut::kBlocks, algorithms::direct_broadcast},
    {kBroadcast, "direct_packets", kAnyRanks, Cut::kBlocks, algorithms::direct_broadcast, kPackets},
    {kBroadcast, "direct_pull", kAnyRanks, Cut::kBlocks, algorithms::direct_broadcast, kPull},
    {kBroadcast, "split", kFanInRanks, Cut::kBlocksAndOthers, algorithms::split_broadcast},
    {kBroadcast, "split_packets", kFanInRanks, Cut::kBlocksAndOthers, algorithms::split_broadcast, kPackets},
    {kBroadcast, "split_put", kFanInRanks, Cut::kBlocksAndOthers, algorithms::split_put_broadcast, kPull},
    {kBroadcast, "tree", kAnyRanks, Cut::kBlocks, algorithms::tree_broadcast},
    {kBroadcast, "leaders", kFanInRanks, Cut::kBlocks, algorithms::leaders_broadcast, kSlots, true},
    {kReduce, "chain", kAnyRanks, Cut::kBlocks, algorithms::chain_reduce},
    {kReduce, "chain_packets", kAnyRanks, Cut::kBlocks, algorithms::chain_reduce, kPackets},
    {kReduce, "chain_put", kAnyRanks, Cut::kBlocks, algorithms::chain_put_reduce, kPull},
    {kReduce, "direct", kFanInRanks, Cut::kBlocks, algorithms::direct_reduce},
    {kReduce, "direct_packets", kFanInRanks, Cut::kBlocks, algorithms::direct_reduce, kPackets},
    {kReduce, "direct_pull", kFanInRanks, Cut::kBlocks, algorithms::direct_reduce, kPull},
    {kReduce, "split", kFanInRanks, Cut::kBlocksAndOthers, algorithms::split_reduce},
    {kReduce, "split_packets", kFanInRanks, Cut::kBlocksAndOthers, algorithms::split_reduce, kPackets},
    {kReduce, "split_put", kFanInRanks, Cut::kBlocksAndOthers, algorithms::split_put_reduce, kPull},
    {kReduce, "tree", kAnyRanks, Cut::kBlocks, algorithms::tree_reduce},
    {kReduce, "leaders", kFanInRanks, Cut::kBlocks, algorithms::leaders_reduce, kSlots, true},
    {kAllToAll, "pairwise", kAnyRanks, Cut::kBlocks, algorithms::pairwise_all_to_all},
    {kAllToAll, "pairwise_packets", kAnyRanks, Cut::kBlocks, algorithms::pairwise_all_to_all, kPackets},
    {kAllToAll, "pairwise_pull", kAnyRanks, Cut::kBlocks, algorithms::pairwise_all_to_all, kPull},
    {kAllToAll, "pairwise_put", kAnyRanks, Cut::kBlocks, algorithms::pairwise_put_all_to_all, kPull},
    {kAllToAll, "two_step", kAnyRanks, Cut::kWhole, algorithms::two_step_all_to_all, kSlots, true},
    {kAllToAll, "three_step", kAnyRanks, Cut::kWhole, algorithms::three_step_all_to_all, kSlots, true},
    {kGather, "direct", kAnyRanks, Cut::kBlocks, algorithms::direct_gather},
    {kGather, "direct_pull", kAnyRanks, Cut::kBlocks, algorithms::direct_gather, kPull},
    {kScatter, "direct", kAnyRanks, Cut::kBlocks, algorithms::direct_scatter},
    {kScatter, "direct_pull", kAnyRanks, Cut::kBlocks, algorithms::direct_scatter, kPull},
    {kSendRecv, "direct", 2, Cut::kBlocks, algorithms::direct_send_recv},
    {kSendRecv, "direct_packets", 2, Cut::kBlocks, algorithms::direct_send_recv, kPackets},
    {kSendRecv, "direct_pull", 2, Cut::kBlocks, algorithms::direct_send_recv, kPull},
    {kSendRecv, "direct_put", 2, Cut::kBlocks, algorithms::direct_put_send_recv, kPull},
    {kBarrier, "ring", kAnyRanks, Cut::kBlocksAndRanks, algorithms::ring_all_reduce},
    {kBarrier, "one_shot", kFanInRanks, Cut::kBlocks, algorithms::one_shot_all_reduce},
    {kBarrier, "leaders", kFanInRanks, Cut::kBlocks, algorithms::leaders_all_reduce, kSlots, true},
    {kBarrier, "one_shot_packets", kFanInRanks, Cut::kBlocks, algorithms::one_shot_all_reduce, kPackets},
    {kCustom, "all_to_next", kAnyRanks, Cut::kBlocksAndPlaces, algorithms::spread_all_to_next, kSlots, true},
    {kCustom, "all_to_next_direct", kAnyRanks, Cut::kBlocks, algorithms::direct_all_to_next},
    {kCustom, "all_to_next_direct_packets", kAnyRanks, Cut::kBlocks, algorithms::direct_all_to_next,
     kPackets},
    {kCustom, "all_to_next_direct_pull", kAnyRanks, Cut::kBlocks, algorithms::direct_all_to_next, kPull},
};

// Names by collective, made once from the table.
const std::vector<std::string_view>& names_of(Collective collective) {
  static const auto all = [] {
    std::array<std::vector<std::string_view>, kCollectiveCount> names;
    for (const Algorithm& a : kAlgorithms) names[static_cast<std::size_t>(a.collective)].push_back(a.name);
    return names;
  }();
  return all.at(static_cast<std::size_t>(collective));
}

const Algorithm* find(std::string_view name, Collective collective) {
  for (const Algorithm& a : kAlgorithms) {
    if (a.collective == collective && a.name == name) return &a;
  }
  return nullptr;
}

// "hierarchical:4@65536" is "hierarchical" on 4 nodes, in tiles of 65536 bytes at most.
struct Named {
  std::string_view algorithm;
  // 0: what stands behind the mark is no number.
  std::optional<std::uint32_t> node_count;
  std::optional<std::uint32_t> tile_bytes;
};

// Cuts off `mark` and the number behind it.
std::optional<std::uint32_t> number_behind(char mark, std::string_view& name) {
  const std::size_t at = name.find(mark);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view digits = name.substr(at + 1);
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool is_number = error == std::errc() && end == digits.data() + digits.size();
  name = name.substr(0, at);
  return is_number ? number : 0;
}

Named parsed(std::string_view name) {
  Named named;
  named.tile_bytes = number_behind('@', name);
  named.node_count = number_behind(':', name);
  named.algorithm = name;
  return named;
}

// Empty: they are possible.
std::string refusal_of_tiles(const Named& name) {
  if (!name.tile_bytes || (*name.tile_bytes != 0 && *name.tile_bytes % 16 == 0)) return "";
  return "has tiles of a multiple of 16 bytes";
}

// Why so many nodes are not possible; empty: they are.
std::string refusal_of_nodes(const Algorithm& algorithm, const Named& name, std::uint32_t rank_count) {
  if (!name.node_count) return "";
  if (!algorithm.knows_nodes) return "knows no nodes";
  const std::uint32_t nodes = *name.node_count;
  if (rank_count == 1 && nodes == 1) return "";
  if (nodes >= 2 && nodes <= rank_count && rank_count % nodes == 0) return "";
  return "takes 2 nodes or more, equally large, which " + std::to_string(rank_count) + " ranks cannot be";
}

std::uint32_t place_of(std::uint32_t rank, std::span<const std::uint16_t> order) {
  const auto found = std::find(order.begin(), order.end(), rank);
  STARLING_ASSERT(found != order.end(), "an order of ranks lacks one");
  return static_cast<std::uint32_t>(found - order.begin());
}

std::uint32_t fewest_nodes(std::uint32_t rank_count) {
  for (std::uint32_t nodes = 2; nodes * nodes <= rank_count; ++nodes) {
    if (rank_count % nodes == 0) return nodes;
  }
  return rank_count;
}

// As named, else as the request knows them, else as few as can be.
std::uint32_t nodes_of(std::string_view name, const PlanRequest& request) {
  if (const auto named = parsed(name).node_count) return *named;
  return request.node_count != 0 ? request.node_count : fewest_nodes(request.rank_count);
}

std::string usable_names(const PlanRequest& request) {
  std::string text;
  for (const std::string_view name : algorithms_for(request.collective)) {
    if (!algorithm_takes(name, request.collective, request.rank_count)) continue;
    text += (text.empty() ? "use " : ", ") + std::string(name);
  }
  return text.empty() ? "no built-in algorithm serves this request" : text;
}

const Algorithm& find_or_throw(std::string_view name, const PlanRequest& request) {
  const std::string collective(traits_of(request.collective).name);
  const Algorithm* algorithm = find(parsed(name).algorithm, request.collective);
  if (algorithm == nullptr) {
    throw Error(Code::invalid_argument, collective + " has no algorithm '" + std::string(name) + "'",
                usable_names(request));
  }
  if (request.rank_count > algorithm->rank_limit) {
    throw Error(Code::invalid_argument,
                "algorithm '" + std::string(name) + "' of " + collective + " takes at most " +
                    std::to_string(algorithm->rank_limit) + " ranks, not " +
                    std::to_string(request.rank_count),
                usable_names(request));
  }
  if (const std::string why = refusal_of_nodes(*algorithm, parsed(name), request.rank_count); !why.empty()) {
    throw Error(Code::invalid_argument, "algorithm '" + std::string(name) + "' of " + collective + " " + why,
                algorithm->knows_nodes ? "name a number of nodes that divides the ranks, or none"
                                       : "leave the colon and what follows it out");
  }
  if (const std::string why = refusal_of_tiles(parsed(name)); !why.empty()) {
    throw Error(Code::invalid_argument, "algorithm '" + std::string(name) + "' of " + collective + " " + why,
                "name a positive multiple of 16 behind the @, or leave both out");
  }
  if (request.block_count < 1 || request.block_count > kMaxPlanBlocks) {
    throw Error(Code::invalid_argument, "a plan with " + std::to_string(request.block_count) + " blocks",
                "use 1 to " + std::to_string(kMaxPlanBlocks));
  }
  return *algorithm;
}

std::uint32_t chunks_of_group(Cut cut, const PlanRequest& request) {
  if (request.rank_count == 1) return request.block_count;  // see algorithms::alone
  switch (cut) {
    case Cut::kWhole: return 1;
    case Cut::kBlocks: return request.block_count;
    case Cut::kBlocksTwice: return 2 * request.block_count;
    case Cut::kBlocksAndPower: return request.block_count * std::bit_floor(request.rank_count);
    case Cut::kBlocksAndRanks: return request.block_count * request.rank_count;
    case Cut::kBlocksAndOthers: return request.block_count * (request.rank_count - 1);
    case Cut::kBlocksAndPlaces: return request.block_count * (request.rank_count / request.node_count);
  }
  STARLING_ASSERT(false, "a way to cut groups that nobody knows");
}

}  // namespace

void algorithms::alone(PlanBuilder& plan, const PlanRequest& request) {
  const CollectiveTraits& traits = traits_of(request.collective);
  plan.set_blocks(0, request.block_count);
  if (request.collective == kCustom) return plan.set_postcondition({});
  for (std::uint32_t b = 0; b < request.block_count; ++b) {
    if (request.in_place && !traits.reduces) {
      plan.add(0, b, {.opcode = Opcode::nop, .size = output(b)});
    } else {
      plan.add(
          0, b,
          {.opcode = Opcode::copy, .source = input(b), .destination = output(b), .final = traits.reduces});
    }
  }
}

Plan generate(std::string_view name, const PlanRequest& asked) {
  const Algorithm& algorithm = find_or_throw(name, asked);
  PlanRequest request = asked;
  request.node_count = nodes_of(name, asked);
  const bool alone = request.rank_count == 1;
  // Algorithms speak of places. Those that move several parts in one instruction know them as numbered, and
  // so do collectives that say which rank is the next.
  const bool renamed = !asked.order.empty() && algorithm.cut != Cut::kWhole && asked.collective != kCustom;
  if (renamed) request.root = place_of(asked.root, asked.order);
  PlanBuilder builder(std::string(name),
                      Geometry::standard(request.collective, request.rank_count, request.root,
                                         request.in_place, chunks_of_group(algorithm.cut, request)));
  // In place these write over what its readers may not have pulled yet.
  const bool overwrites =
      request.in_place && (request.collective == kAllToAll || request.collective == kCustom ||
                           algorithm.generate == algorithms::one_shot_all_reduce);
  builder.set_protocol(overwrites && algorithm.protocol == kPull ? Protocol::kSlots : algorithm.protocol);
  builder.set_tile(parsed(name).tile_bytes.value_or(0));
  (alone ? algorithms::alone : algorithm.generate)(builder, request);
  if (renamed) builder.rename_ranks(asked.order);
  return builder.build();
}

std::span<const std::string_view> algorithms_for(Collective collective) { return names_of(collective); }

std::string_view without_pull(std::string_view name) {
  const std::string_view algorithm = name.substr(0, name.find('@'));
  for (const std::string_view suffix : {"_pull", "_put"})
    if (algorithm.ends_with(suffix)) return algorithm.substr(0, algorithm.size() - suffix.size());
  return name;
}

bool takes_addresses(std::string_view name) { return parsed(name).algorithm.ends_with("_put"); }

bool is_of_neighbours(std::string_view name) {
  const std::string_view algorithm = parsed(name).algorithm;
  return algorithm.starts_with("ring") || algorithm.starts_with("chain");
}

bool is_algorithm(std::string_view name, Collective collective) {
  return find(parsed(name).algorithm, collective) != nullptr;
}

bool algorithm_takes(std::string_view name, Collective collective, std::uint32_t rank_count) {
  const Named named = parsed(name);
  const Algorithm* algorithm = find(named.algorithm, collective);
  return algorithm != nullptr && rank_count >= 1 && rank_count <= algorithm->rank_limit &&
         refusal_of_nodes(*algorithm, named, rank_count).empty() && refusal_of_tiles(named).empty();
}

}  // namespace starling
