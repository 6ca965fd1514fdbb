// The generators behind generate(): one function per collective and algorithm, for two ranks or more.
#pragma once
#include <cstdint>
#include <vector>

#include "plan/builder.h"

namespace starling::algorithms {

void ring_all_reduce(PlanBuilder& plan, const PlanRequest& request);
void ring_all_gather(PlanBuilder& plan, const PlanRequest& request);
void ring_reduce_scatter(PlanBuilder& plan, const PlanRequest& request);

void one_shot_all_reduce(PlanBuilder& plan, const PlanRequest& request);
void two_shot_all_reduce(PlanBuilder& plan, const PlanRequest& request);
void two_shot_put_all_reduce(PlanBuilder& plan, const PlanRequest& request);
void ring_put_all_reduce(PlanBuilder& plan, const PlanRequest& request);
void ring_put_all_gather(PlanBuilder& plan, const PlanRequest& request);
void ring_put_reduce_scatter(PlanBuilder& plan, const PlanRequest& request);
void all_pairs_all_gather(PlanBuilder& plan, const PlanRequest& request);
void all_pairs_put_all_gather(PlanBuilder& plan, const PlanRequest& request);
void all_pairs_reduce_scatter(PlanBuilder& plan, const PlanRequest& request);

void halving_doubling_all_reduce(PlanBuilder& plan, const PlanRequest& request);
void hierarchical_all_reduce(PlanBuilder& plan, const PlanRequest& request);

void rails_all_reduce(PlanBuilder& plan, const PlanRequest& request);
void rails_all_gather(PlanBuilder& plan, const PlanRequest& request);
void rails_reduce_scatter(PlanBuilder& plan, const PlanRequest& request);

void leaders_all_reduce(PlanBuilder& plan, const PlanRequest& request);
void leaders_broadcast(PlanBuilder& plan, const PlanRequest& request);
void leaders_reduce(PlanBuilder& plan, const PlanRequest& request);

void double_tree_all_reduce(PlanBuilder& plan, const PlanRequest& request);
void tree_broadcast(PlanBuilder& plan, const PlanRequest& request);
void tree_reduce(PlanBuilder& plan, const PlanRequest& request);

void chain_broadcast(PlanBuilder& plan, const PlanRequest& request);
void chain_put_broadcast(PlanBuilder& plan, const PlanRequest& request);
void chain_reduce(PlanBuilder& plan, const PlanRequest& request);
void chain_put_reduce(PlanBuilder& plan, const PlanRequest& request);

void split_broadcast(PlanBuilder& plan, const PlanRequest& request);
void split_put_broadcast(PlanBuilder& plan, const PlanRequest& request);
void split_reduce(PlanBuilder& plan, const PlanRequest& request);
void split_put_reduce(PlanBuilder& plan, const PlanRequest& request);

void direct_broadcast(PlanBuilder& plan, const PlanRequest& request);
void direct_reduce(PlanBuilder& plan, const PlanRequest& request);
void direct_gather(PlanBuilder& plan, const PlanRequest& request);
void direct_scatter(PlanBuilder& plan, const PlanRequest& request);
void direct_send_recv(PlanBuilder& plan, const PlanRequest& request);
void direct_put_send_recv(PlanBuilder& plan, const PlanRequest& request);
void pairwise_all_to_all(PlanBuilder& plan, const PlanRequest& request);
void pairwise_put_all_to_all(PlanBuilder& plan, const PlanRequest& request);
void two_step_all_to_all(PlanBuilder& plan, const PlanRequest& request);
void three_step_all_to_all(PlanBuilder& plan, const PlanRequest& request);

void direct_all_to_next(PlanBuilder& plan, const PlanRequest& request);
void spread_all_to_next(PlanBuilder& plan, const PlanRequest& request);

// Any collective over one rank: what it keeps, it copies. AllToNext keeps nothing.
void alone(PlanBuilder& plan, const PlanRequest& request);

// Block b's connection with a peer; channel c belongs to block c.
inline Connection with(std::uint32_t peer, std::uint32_t block) {
  return {static_cast<std::uint16_t>(peer), static_cast<std::uint16_t>(block)};
}

// All ranks but `rank`, ascending: the order in which one rank's fan-in reduces.
std::vector<Connection> with_all_others(std::uint32_t rank, std::uint32_t rank_count, std::uint32_t block);

// (rank + offset) modulo the number of ranks; the offset may be negative, but for less than that number.
inline std::uint32_t around(std::uint32_t rank, std::int64_t offset, std::uint32_t rank_count) {
  return static_cast<std::uint32_t>((rank + offset + rank_count) % rank_count);
}

// A message has at most so many chunks, so that a tile of each fits in the smallest slot.
inline constexpr std::uint32_t kWidestMessage = 64;

// Calls visit(first, count) for the pieces of a slice that are narrow enough for a message.
template <typename Visit>
void for_each_piece(std::uint32_t chunks, Visit&& visit) {
  for (std::uint32_t first = 0; first < chunks; first += kWidestMessage)
    visit(first, chunks - first < kWidestMessage ? chunks - first : kWidestMessage);
}

}  // namespace starling::algorithms
