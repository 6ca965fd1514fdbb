// Rings: every rank talks to its two neighbours alone, and every byte crosses each link as few times as can
// be.
#include "plan/algorithms.h"

namespace starling::algorithms {

// A reduce-scatter that goes round once, then an all-gather: rank r starts chunk r on its way, ends up with
// the sum of chunk r + 1, and passes the sums on. A partial sum never touches local memory
// (recv_reduce_send).
void ring_all_reduce(PlanBuilder& plan, const PlanRequest& request) {
  const std::uint32_t n = request.rank_count;
  for (std::uint32_t r = 0; r < n; ++r) {
    for (std::uint32_t b = 0; b < request.block_count; ++b) {
      const Connection previous = with(around(r, -1, n), b);
      const Connection next = with(around(r, 1, n), b);
      const auto chunk = [&](std::int64_t steps_back) { return b * n + around(r, -steps_back, n); };
      plan.add(r, b, {.opcode = Opcode::send, .source = input(chunk(0)), .sends = {next}});
      for (std::uint32_t s = 1; s + 1 < n; ++s) {
        plan.add(r, b,
                 {.opcode = Opcode::recv_reduce_send,
                  .source = input(chunk(s)),
                  .receives = {previous},
                  .sends = {next},
                  .local_position = 1});
      }
      plan.add(r, b,
               {.opcode = Opcode::recv_reduce_copy_send,
                .source = input(chunk(n - 1)),
                .destination = output(chunk(n - 1)),
                .receives = {previous},
                .sends = {next},
                .local_position = 1,
                .final = true});
      for (std::uint32_t s = 0; s + 2 < n; ++s) {
        plan.add(r, b,
                 {.opcode = Opcode::recv_copy_send,
                  .destination = output(chunk(s)),
                  .receives = {previous},
                  .sends = {next}});
      }
      plan.add(r, b, {.opcode = Opcode::recv, .destination = output(chunk(n - 2)), .receives = {previous}});
    }
  }
}

// Each rank's part goes round the ring and stays with everyone it passes.
void ring_all_gather(PlanBuilder& plan, const PlanRequest& request) {
  const std::uint32_t n = request.rank_count;
  const std::uint32_t blocks = request.block_count;
  for (std::uint32_t r = 0; r < n; ++r) {
    for (std::uint32_t b = 0; b < blocks; ++b) {
      const Connection previous = with(around(r, -1, n), b);
      const Connection next = with(around(r, 1, n), b);
      const auto part_of = [&](std::int64_t steps_back) {
        return output(around(r, -steps_back, n) * blocks + b);
      };
      plan.add(r, b, {.opcode = Opcode::send, .source = input(b), .sends = {next}});
      if (!request.in_place) {
        plan.add(r, b, {.opcode = Opcode::copy, .source = input(b), .destination = part_of(0)});
      }
      for (std::uint32_t s = 1; s + 1 < n; ++s) {
        plan.add(r, b,
                 {.opcode = Opcode::recv_copy_send,
                  .destination = part_of(s),
                  .receives = {previous},
                  .sends = {next}});
      }
      plan.add(r, b, {.opcode = Opcode::recv, .destination = part_of(n - 1), .receives = {previous}});
    }
  }
}

// The part of rank g starts at rank g + 1 and comes home as a sum.
void ring_reduce_scatter(PlanBuilder& plan, const PlanRequest& request) {
  const std::uint32_t n = request.rank_count;
  const std::uint32_t blocks = request.block_count;
  for (std::uint32_t r = 0; r < n; ++r) {
    for (std::uint32_t b = 0; b < blocks; ++b) {
      const Connection previous = with(around(r, -1, n), b);
      const Connection next = with(around(r, 1, n), b);
      const auto part_of = [&](std::int64_t steps_back) {
        return input(around(r, -steps_back, n) * blocks + b);
      };
      plan.add(r, b, {.opcode = Opcode::send, .source = part_of(1), .sends = {next}});
      for (std::uint32_t s = 2; s < n; ++s) {
        plan.add(r, b,
                 {.opcode = Opcode::recv_reduce_send,
                  .source = part_of(s),
                  .receives = {previous},
                  .sends = {next},
                  .local_position = 1});
      }
      plan.add(r, b,
               {.opcode = Opcode::recv_reduce_copy,
                .source = part_of(0),
                .destination = output(b),
                .receives = {previous},
                .local_position = 1,
                .final = true});
    }
  }
}

}  // namespace starling::algorithms
