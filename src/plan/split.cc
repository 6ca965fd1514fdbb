// Split algorithms: what has a root is cut among the other ranks, its owners, so that every link carries a
// part. Owner k is the k-th rank after the root and has chunk k of every block. With `puts` what lands where
// its receiver wants it as it is, is put there.
#include "plan/algorithms.h"

namespace starling::algorithms {
namespace {

std::uint32_t owner(const PlanRequest& request, std::uint32_t k) {
  return around(request.root, std::int64_t{k} + 1, request.rank_count);
}

// Owner k's, of chunk k.
void add_owner_of_broadcast(PlanBuilder& plan, const PlanRequest& request, std::uint32_t b, std::uint32_t k,
                            bool puts) {
  const std::uint32_t owners = request.rank_count - 1;
  const std::uint32_t self = owner(request, k);
  std::vector<Connection> others;
  for (const Connection& peer : with_all_others(self, request.rank_count, b))
    if (peer.peer != request.root) others.push_back(peer);
  const bool forwards = !others.empty();
  plan.add(self, b,
           {.opcode = forwards ? Opcode::recv_copy_send : Opcode::recv,
            .destination = output(b * owners + k),
            .receives = {with(request.root, b)},
            .sends = others,
            .put = puts && forwards});
  for (std::uint32_t s = 1; s < owners; ++s) {
    const std::uint32_t from = around(k, -std::int64_t{s}, owners);
    plan.add(self, b,
             {.opcode = Opcode::recv,
              .destination = output(b * owners + from),
              .receives = {with(owner(request, from), b)},
              .put = puts});
  }
}

// Scatter, then all-gather among the owners.
void broadcast(PlanBuilder& plan, const PlanRequest& request, bool puts) {
  const std::uint32_t owners = request.rank_count - 1;
  const std::uint32_t root = request.root;
  for (std::uint32_t b = 0; b < request.block_count; ++b) {
    for (std::uint32_t k = 0; k < owners; ++k) {
      const Operand chunk = input(b * owners + k);
      plan.add(root, b, {.opcode = Opcode::send, .source = chunk, .sends = {with(owner(request, k), b)}});
    }
    for (std::uint32_t k = 0; k < owners && !request.in_place; ++k) {
      const std::uint32_t chunk = b * owners + k;
      plan.add(root, b, {.opcode = Opcode::copy, .source = input(chunk), .destination = output(chunk)});
    }
    for (std::uint32_t k = 0; k < owners; ++k) add_owner_of_broadcast(plan, request, b, k, puts);
  }
}

// Reduce-scatter among the owners, of the root's part, too; then gather.
void reduce(PlanBuilder& plan, const PlanRequest& request, bool puts) {
  const std::uint32_t n = request.rank_count;
  const std::uint32_t owners = n - 1;
  for (std::uint32_t b = 0; b < request.block_count; ++b) {
    for (std::uint32_t place = 0; place < n; ++place) {  // the root has the last one
      const std::uint32_t self = owner(request, place);
      for (std::uint32_t s = 1; s < n; ++s) {
        const std::uint32_t k = around(place, s, n);
        if (k == owners) continue;
        const Operand chunk = input(b * owners + k);
        plan.add(self, b, {.opcode = Opcode::send, .source = chunk, .sends = {with(owner(request, k), b)}});
      }
      if (place == owners) continue;
      plan.add(self, b,
               {.opcode = Opcode::recv_reduce_send,
                .source = input(b * owners + place),
                .receives = with_all_others(self, n, b),
                .sends = {with(request.root, b)},
                .local_position = self,
                .final = true,
                .put = puts});
    }
    for (std::uint32_t k = 0; k < owners; ++k) {
      plan.add(request.root, b,
               {.opcode = Opcode::recv,
                .destination = output(b * owners + k),
                .receives = {with(owner(request, k), b)},
                .put = puts});
    }
  }
}

}  // namespace

void split_broadcast(PlanBuilder& plan, const PlanRequest& request) { broadcast(plan, request, false); }
void split_put_broadcast(PlanBuilder& plan, const PlanRequest& request) { broadcast(plan, request, true); }

void split_reduce(PlanBuilder& plan, const PlanRequest& request) { reduce(plan, request, false); }
void split_put_reduce(PlanBuilder& plan, const PlanRequest& request) { reduce(plan, request, true); }

}  // namespace starling::algorithms
