// Every part goes straight from its owner to the rank that wants it: gather, scatter, all-to-all, send and
// receive. With `puts` its owner writes it there.
#include "plan/algorithms.h"

namespace starling::algorithms {

void direct_gather(PlanBuilder& plan, const PlanRequest& request) {
  const std::uint32_t n = request.rank_count;
  const std::uint32_t blocks = request.block_count;
  const std::uint32_t root = request.root;
  for (std::uint32_t b = 0; b < blocks; ++b) {
    if (!request.in_place) {
      plan.add(root, b,
               {.opcode = Opcode::copy, .source = input(b), .destination = output(root * blocks + b)});
    }
    for (std::uint32_t s = 1; s < n; ++s) {
      const std::uint32_t peer = around(root, s, n);
      plan.add(peer, b, {.opcode = Opcode::send, .source = input(b), .sends = {with(root, b)}});
      plan.add(
          root, b,
          {.opcode = Opcode::recv, .destination = output(peer * blocks + b), .receives = {with(peer, b)}});
    }
  }
}

void direct_scatter(PlanBuilder& plan, const PlanRequest& request) {
  const std::uint32_t n = request.rank_count;
  const std::uint32_t blocks = request.block_count;
  const std::uint32_t root = request.root;
  for (std::uint32_t b = 0; b < blocks; ++b) {
    for (std::uint32_t s = 1; s < n; ++s) {
      const std::uint32_t peer = around(root, s, n);
      plan.add(root, b,
               {.opcode = Opcode::send, .source = input(peer * blocks + b), .sends = {with(peer, b)}});
      plan.add(peer, b, {.opcode = Opcode::recv, .destination = output(b), .receives = {with(root, b)}});
    }
    if (!request.in_place) {
      plan.add(root, b,
               {.opcode = Opcode::copy, .source = input(root * blocks + b), .destination = output(b)});
    }
  }
}

namespace {

// A tile of every part is sent before one is received: nobody waits for a peer that waits for another, which
// costs where ranks share cores. And a part is read before it is written, so the exchange is right in place,
// without scratch. What comes first was sent first: in round k a rank sends to the k-th after it.
void pairwise(PlanBuilder& plan, const PlanRequest& request, bool puts) {
  const std::uint32_t n = request.rank_count;
  const std::uint32_t blocks = request.block_count;
  for (std::uint32_t r = 0; r < n; ++r) {
    for (std::uint32_t b = 0; b < blocks; ++b) {
      for (std::uint32_t round = 1; round < n; ++round) {
        const std::uint32_t peer = around(r, round, n);
        plan.add(r, b,
                 {.opcode = Opcode::send,
                  .source = input(peer * blocks + b),
                  .sends = {with(peer, b)},
                  .put = puts});
      }
      if (!request.in_place)
        plan.add(
            r, b,
            {.opcode = Opcode::copy, .source = input(r * blocks + b), .destination = output(r * blocks + b)});
      for (std::uint32_t round = 1; round < n; ++round) {
        const std::uint32_t peer = around(r, -std::int64_t{round}, n);
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

void pairwise_all_to_all(PlanBuilder& plan, const PlanRequest& request) { pairwise(plan, request, false); }
// In place a rank would write over what its peer has not read yet.
void pairwise_put_all_to_all(PlanBuilder& plan, const PlanRequest& request) {
  pairwise(plan, request, !request.in_place);
}

namespace {

// The lane of an ordered pair: rank 0 sends, rank 1 receives.
void send_recv(PlanBuilder& plan, const PlanRequest& request, bool puts) {
  for (std::uint32_t b = 0; b < request.block_count; ++b) {
    plan.add(0, b, {.opcode = Opcode::send, .source = input(b), .sends = {with(1, b)}, .put = puts});
    plan.add(1, b, {.opcode = Opcode::recv, .destination = output(b), .receives = {with(0, b)}, .put = puts});
  }
}

}  // namespace

void direct_send_recv(PlanBuilder& plan, const PlanRequest& request) { send_recv(plan, request, false); }
void direct_put_send_recv(PlanBuilder& plan, const PlanRequest& request) { send_recv(plan, request, true); }

}  // namespace starling::algorithms
