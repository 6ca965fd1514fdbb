// All-pairs algorithms: every rank talks to every other one, in one step or two. Few steps, so low latency; a
// fan-in reduces in the order of the ranks, so that every rank gets the same bits. With `puts` what lands
// where its receiver wants it as it is, is put there.
#include <algorithm>

#include "plan/algorithms.h"

namespace starling::algorithms {
namespace {

// One message to many peers, in as few instructions as the bound on a fan allows.
void fan_out(PlanBuilder& plan, std::uint32_t rank, std::uint32_t block, Operand source,
             const std::vector<Connection>& peers, bool puts = false) {
  for (std::size_t first = 0; first < peers.size(); first += kMaxFan) {
    const std::size_t last = std::min<std::size_t>(peers.size(), first + kMaxFan);
    const auto begin = peers.begin();
    plan.add(rank, block,
             {.opcode = Opcode::send,
              .source = source,
              .sends = std::vector<Connection>(begin + std::ptrdiff_t(first), begin + std::ptrdiff_t(last)),
              .put = puts});
  }
}

// Reduce-scatter by all pairs, then all-gather by all pairs: rank r sums up chunk r for everyone.
void two_shot(PlanBuilder& plan, const PlanRequest& request, bool puts) {
  const std::uint32_t n = request.rank_count;
  for (std::uint32_t r = 0; r < n; ++r) {
    for (std::uint32_t b = 0; b < request.block_count; ++b) {
      const std::vector<Connection> others = with_all_others(r, n, b);
      for (std::uint32_t s = 1; s < n; ++s) {
        const std::uint32_t peer = around(r, s, n);
        plan.add(r, b, {.opcode = Opcode::send, .source = input(b * n + peer), .sends = {with(peer, b)}});
      }
      plan.add(r, b,
               {.opcode = Opcode::recv_reduce_copy_send,
                .source = input(b * n + r),
                .destination = output(b * n + r),
                .receives = others,
                .sends = others,
                .local_position = r,
                .final = true,
                .put = puts});
      for (std::uint32_t s = 1; s < n; ++s) {
        const std::uint32_t peer = around(r, -std::int64_t{s}, n);
        plan.add(r, b,
                 {.opcode = Opcode::recv,
                  .destination = output(b * n + peer),
                  .receives = {with(peer, b)},
                  .put = puts});
      }
    }
  }
}

void all_gather(PlanBuilder& plan, const PlanRequest& request, bool puts) {
  const std::uint32_t n = request.rank_count;
  const std::uint32_t blocks = request.block_count;
  for (std::uint32_t r = 0; r < n; ++r) {
    for (std::uint32_t b = 0; b < blocks; ++b) {
      fan_out(plan, r, b, input(b), with_all_others(r, n, b), puts);
      if (!request.in_place) {
        plan.add(r, b, {.opcode = Opcode::copy, .source = input(b), .destination = output(r * blocks + b)});
      }
      for (std::uint32_t s = 1; s < n; ++s) {
        const std::uint32_t peer = around(r, -std::int64_t{s}, n);
        plan.add(r, b,
                 {.opcode = Opcode::recv,
                  .destination = output(peer * blocks + b),
                  .receives = {with(peer, b)},
                  .put = puts});
      }
    }
  }
}

}  // namespace

std::vector<Connection> with_all_others(std::uint32_t rank, std::uint32_t rank_count, std::uint32_t block) {
  std::vector<Connection> others;
  for (std::uint32_t peer = 0; peer < rank_count; ++peer) {
    if (peer != rank) others.push_back(with(peer, block));
  }
  return others;
}

void one_shot_all_reduce(PlanBuilder& plan, const PlanRequest& request) {
  for (std::uint32_t r = 0; r < request.rank_count; ++r) {
    for (std::uint32_t b = 0; b < request.block_count; ++b) {
      const std::vector<Connection> others = with_all_others(r, request.rank_count, b);
      plan.add(r, b, {.opcode = Opcode::send, .source = input(b), .sends = others});
      plan.add(r, b,
               {.opcode = Opcode::recv_reduce_copy,
                .source = input(b),
                .destination = output(b),
                .receives = others,
                .local_position = r,
                .final = true});
    }
  }
}

void two_shot_all_reduce(PlanBuilder& plan, const PlanRequest& request) { two_shot(plan, request, false); }
void two_shot_put_all_reduce(PlanBuilder& plan, const PlanRequest& request) { two_shot(plan, request, true); }

void all_pairs_all_gather(PlanBuilder& plan, const PlanRequest& request) { all_gather(plan, request, false); }
void all_pairs_put_all_gather(PlanBuilder& plan, const PlanRequest& request) {
  all_gather(plan, request, true);
}

void all_pairs_reduce_scatter(PlanBuilder& plan, const PlanRequest& request) {
  const std::uint32_t n = request.rank_count;
  const std::uint32_t blocks = request.block_count;
  for (std::uint32_t r = 0; r < n; ++r) {
    for (std::uint32_t b = 0; b < blocks; ++b) {
      for (std::uint32_t s = 1; s < n; ++s) {
        const std::uint32_t peer = around(r, s, n);
        plan.add(r, b,
                 {.opcode = Opcode::send, .source = input(peer * blocks + b), .sends = {with(peer, b)}});
      }
      plan.add(r, b,
               {.opcode = Opcode::recv_reduce_copy,
                .source = input(r * blocks + b),
                .destination = output(b),
                .receives = with_all_others(r, n, b),
                .local_position = r,
                .final = true});
    }
  }
}

void direct_broadcast(PlanBuilder& plan, const PlanRequest& request) {
  for (std::uint32_t r = 0; r < request.rank_count; ++r) {
    for (std::uint32_t b = 0; b < request.block_count; ++b) {
      if (r != request.root) {
        plan.add(r, b,
                 {.opcode = Opcode::recv, .destination = output(b), .receives = {with(request.root, b)}});
        continue;
      }
      fan_out(plan, r, b, input(b), with_all_others(r, request.rank_count, b));
      if (!request.in_place)
        plan.add(r, b, {.opcode = Opcode::copy, .source = input(b), .destination = output(b)});
    }
  }
}

void direct_reduce(PlanBuilder& plan, const PlanRequest& request) {
  for (std::uint32_t r = 0; r < request.rank_count; ++r) {
    for (std::uint32_t b = 0; b < request.block_count; ++b) {
      if (r != request.root) {
        plan.add(r, b, {.opcode = Opcode::send, .source = input(b), .sends = {with(request.root, b)}});
        continue;
      }
      plan.add(r, b,
               {.opcode = Opcode::recv_reduce_copy,
                .source = input(b),
                .destination = output(b),
                .receives = with_all_others(r, request.rank_count, b),
                .local_position = r,
                .final = true});
    }
  }
}

}  // namespace starling::algorithms
