// Chains: the tiles of one large message follow each other down a line of ranks, as in a pipe.
#include "plan/algorithms.h"

namespace starling::algorithms {

void chain_broadcast(PlanBuilder& plan, const PlanRequest& request) {
  const std::uint32_t n = request.rank_count;
  for (std::uint32_t place = 0; place < n; ++place) {
    const std::uint32_t r = around(request.root, place, n);
    for (std::uint32_t b = 0; b < request.block_count; ++b) {
      const Connection above = with(around(r, -1, n), b);
      const Connection below = with(around(r, 1, n), b);
      if (place == 0) {
        plan.add(r, b, {.opcode = Opcode::send, .source = input(b), .sends = {below}});
        if (!request.in_place)
          plan.add(r, b, {.opcode = Opcode::copy, .source = input(b), .destination = output(b)});
      } else if (place + 1 < n) {
        plan.add(r, b,
                 {.opcode = Opcode::recv_copy_send,
                  .destination = output(b),
                  .receives = {above},
                  .sends = {below}});
      } else {
        plan.add(r, b, {.opcode = Opcode::recv, .destination = output(b), .receives = {above}});
      }
    }
  }
}

// The same line upwards: the last rank starts, the root ends.
void chain_reduce(PlanBuilder& plan, const PlanRequest& request) {
  const std::uint32_t n = request.rank_count;
  for (std::uint32_t place = 0; place < n; ++place) {
    const std::uint32_t r = around(request.root, place, n);
    for (std::uint32_t b = 0; b < request.block_count; ++b) {
      const Connection above = with(around(r, -1, n), b);
      const Connection below = with(around(r, 1, n), b);
      if (place == 0) {
        plan.add(r, b,
                 {.opcode = Opcode::recv_reduce_copy,
                  .source = input(b),
                  .destination = output(b),
                  .receives = {below},
                  .local_position = 1,
                  .final = true});
      } else if (place + 1 < n) {
        plan.add(r, b,
                 {.opcode = Opcode::recv_reduce_send,
                  .source = input(b),
                  .receives = {below},
                  .sends = {above},
                  .local_position = 1});
      } else {
        plan.add(r, b, {.opcode = Opcode::send, .source = input(b), .sends = {above}});
      }
    }
  }
}

// The same lines, with every message put: what comes down lands where it stays and goes on from there.
void chain_put_broadcast(PlanBuilder& plan, const PlanRequest& request) {
  const std::uint32_t n = request.rank_count;
  for (std::uint32_t place = 0; place < n; ++place) {
    const std::uint32_t r = around(request.root, place, n);
    for (std::uint32_t b = 0; b < request.block_count; ++b) {
      const Connection above = with(around(r, -1, n), b), below = with(around(r, 1, n), b);
      const Operand kept = place == 0 ? input(b) : output(b);
      if (place != 0)
        plan.add(r, b, {.opcode = Opcode::recv, .destination = kept, .receives = {above}, .put = true});
      else if (!request.in_place)
        plan.add(r, b, {.opcode = Opcode::copy, .source = kept, .destination = output(b)});
      if (place + 1 < n)
        plan.add(r, b, {.opcode = Opcode::send, .source = kept, .sends = {below}, .put = true});
    }
  }
}

// What goes up lands in scratch, at the root too: its output may be its input, which is still to be added.
void chain_put_reduce(PlanBuilder& plan, const PlanRequest& request) {
  const std::uint32_t n = request.rank_count;
  for (std::uint32_t place = 0; place < n; ++place) {
    const std::uint32_t r = around(request.root, place, n);
    const bool last = place + 1 == n;
    if (!last) plan.set_scratch(r, request.block_count);
    for (std::uint32_t b = 0; b < request.block_count; ++b) {
      const Connection above = with(around(r, -1, n), b), below = with(around(r, 1, n), b);
      const Operand own = input(b), sum = scratch(b);
      if (last) {
        plan.add(r, b, {.opcode = Opcode::send, .source = own, .sends = {above}, .put = true});
        continue;
      }
      plan.add(r, b,
               {.opcode = Opcode::recv, .destination = sum, .receives = {below}, .size = own, .put = true});
      if (place != 0) {
        plan.add(r, b,
                 {.opcode = Opcode::reduce_send,
                  .source = own,
                  .destination = sum,
                  .sends = {above},
                  .size = own,
                  .put = true});
      } else {
        plan.add(r, b,
                 {.opcode = Opcode::reduce, .source = own, .destination = sum, .size = own, .final = true});
        plan.add(r, b, {.opcode = Opcode::copy, .source = sum, .destination = output(b), .size = own});
      }
    }
  }
}

}  // namespace starling::algorithms
