// Rails: ranks of one place on each node are a column, and only they speak across nodes (ICCL section 5). A
// ring for each column, and one inside each node: a part crosses into a node once.
#include "plan/algorithms.h"

namespace starling::algorithms {
namespace {

// One rank and block.
class Seat {
 public:
  Seat(const PlanRequest& request, std::uint32_t rank, std::uint32_t block)
      : nodes_(request.node_count),
        size_(request.rank_count / nodes_),
        blocks_(request.block_count),
        node_(rank / size_),
        place_(rank % size_),
        block_(block) {}

  std::uint32_t nodes() const { return nodes_; }
  std::uint32_t size() const { return size_; }

  Connection in_column(std::int64_t to) const {
    return with(rank(around(node_, to, nodes_), place_), block_);
  }
  Connection in_node(std::int64_t to) const { return with(rank(node_, around(place_, to, size_)), block_); }

  // The chunk of the part of a rank, so many nodes and places back round the rings.
  std::uint32_t chunk(std::int64_t nodes_back, std::int64_t places_back) const {
    return rank(around(node_, -nodes_back, nodes_), around(place_, -places_back, size_)) * blocks_ + block_;
  }

 private:
  std::uint32_t rank(std::uint32_t node, std::uint32_t place) const { return node * size_ + place; }

  const std::uint32_t nodes_;
  const std::uint32_t size_;  // of a node
  const std::uint32_t blocks_;
  const std::uint32_t node_;
  const std::uint32_t place_;
  const std::uint32_t block_;
};

// The parts of a node's ranks start at the node after it. On each node the own node's ring adds a part up;
// its end adds what came along the column, and sends it on. Nothing that is half added touches memory. The
// sum of the own part goes to `sum`, and along `sends`.
void add_sums(PlanBuilder& plan, std::uint32_t rank, std::uint32_t block, const Seat& seat, Operand sum,
              const std::vector<Connection>& sends) {
  for (std::uint32_t n = 1; n <= seat.nodes(); ++n) {
    for (std::uint32_t s = 1; s < seat.size(); ++s) {
      Step passed{.opcode = Opcode::send, .source = input(seat.chunk(n, s)), .sends = {seat.in_node(1)}};
      if (s > 1) {
        passed.opcode = Opcode::recv_reduce_send;
        passed.receives = {seat.in_node(-1)};
        passed.local_position = 1;
      }
      plan.add(rank, block, std::move(passed));
    }
    Step last{.opcode = Opcode::send, .source = input(seat.chunk(n, 0))};
    if (n > 1) last.receives.push_back(seat.in_column(-1));
    if (seat.size() > 1) last.receives.push_back(seat.in_node(-1));
    last.local_position = static_cast<std::uint32_t>(last.receives.size());
    if (n < seat.nodes()) {
      if (!last.receives.empty()) last.opcode = Opcode::recv_reduce_send;
      last.sends = {seat.in_column(1)};
    } else {
      last.opcode = sends.empty() ? Opcode::recv_reduce_copy : Opcode::recv_reduce_copy_send;
      last.destination = sum;
      last.sends = sends;
      last.final = true;
    }
    plan.add(rank, block, std::move(last));
  }
}

// To whom a part goes that came from so many nodes back: on along the column, and round the own node.
std::vector<Connection> next_of(const Seat& seat, std::uint32_t nodes_back) {
  std::vector<Connection> next;
  if (nodes_back + 1 < seat.nodes()) next.push_back(seat.in_column(1));
  if (seat.size() > 1) next.push_back(seat.in_node(1));
  return next;
}

// The own part is on its way: those of the others come past.
void pass_parts(PlanBuilder& plan, std::uint32_t rank, std::uint32_t block, const Seat& seat) {
  for (std::uint32_t n = 0; n < seat.nodes(); ++n) {
    if (n > 0) {
      const std::vector<Connection> next = next_of(seat, n);
      plan.add(rank, block,
               {.opcode = next.empty() ? Opcode::recv : Opcode::recv_copy_send,
                .destination = output(seat.chunk(n, 0)),
                .receives = {seat.in_column(-1)},
                .sends = next});
    }
    for (std::uint32_t s = 1; s < seat.size(); ++s) {
      const bool ends = s + 1 == seat.size();
      plan.add(rank, block,
               {.opcode = ends ? Opcode::recv : Opcode::recv_copy_send,
                .destination = output(seat.chunk(n, s)),
                .receives = {seat.in_node(-1)},
                .sends = ends ? std::vector<Connection>{} : std::vector{seat.in_node(1)}});
    }
  }
}

}  // namespace

void rails_all_reduce(PlanBuilder& plan, const PlanRequest& request) {
  for (std::uint32_t r = 0; r < request.rank_count; ++r) {
    for (std::uint32_t b = 0; b < request.block_count; ++b) {
      const Seat seat(request, r, b);
      add_sums(plan, r, b, seat, output(seat.chunk(0, 0)), next_of(seat, 0));
      pass_parts(plan, r, b, seat);
    }
  }
}

void rails_all_gather(PlanBuilder& plan, const PlanRequest& request) {
  for (std::uint32_t r = 0; r < request.rank_count; ++r) {
    for (std::uint32_t b = 0; b < request.block_count; ++b) {
      const Seat seat(request, r, b);
      plan.add(r, b, {.opcode = Opcode::send, .source = input(b), .sends = next_of(seat, 0)});
      if (!request.in_place)
        plan.add(r, b, {.opcode = Opcode::copy, .source = input(b), .destination = output(seat.chunk(0, 0))});
      pass_parts(plan, r, b, seat);
    }
  }
}

void rails_reduce_scatter(PlanBuilder& plan, const PlanRequest& request) {
  for (std::uint32_t r = 0; r < request.rank_count; ++r)
    for (std::uint32_t b = 0; b < request.block_count; ++b)
      add_sums(plan, r, b, Seat(request, r, b), output(b), {});
}

}  // namespace starling::algorithms
