// Collectives in which one rank of each node, its leader, speaks for the node: a message between two nodes
// costs far more than one inside, and of small ones there should be few.
#include "plan/algorithms.h"

namespace starling::algorithms {
namespace {

// Who leads: the root its own node, in the others the first rank.
class Nodes {
 public:
  Nodes(const PlanRequest& request, std::uint32_t root)
      : size_(request.rank_count / request.node_count), count_(request.node_count), root_(root) {}

  std::uint32_t node_of(std::uint32_t rank) const { return rank / size_; }
  std::uint32_t leader_of(std::uint32_t rank) const {
    return node_of(rank) == node_of(root_) ? root_ : node_of(rank) * size_;
  }

  // The others of a leader's node, ascending.
  std::vector<Connection> followers(std::uint32_t leader, std::uint32_t block) const {
    std::vector<Connection> all;
    for (std::uint32_t r = node_of(leader) * size_; r < (node_of(leader) + 1) * size_; ++r)
      if (r != leader) all.push_back(with(r, block));
    return all;
  }

  // Ascending by node.
  std::vector<Connection> other_leaders(std::uint32_t leader, std::uint32_t block) const {
    std::vector<Connection> all;
    for (std::uint32_t n = 0; n < count_; ++n)
      if (n != node_of(leader)) all.push_back(with(leader_of(n * size_), block));
    return all;
  }

 private:
  const std::uint32_t size_;
  const std::uint32_t count_;
  const std::uint32_t root_;
};

// A node's sum comes about at its leader, goes to all leaders, and their sum back: each adds the nodes' sums
// in one order.
void leader_all_reduces(PlanBuilder& plan, const Nodes& nodes, std::uint32_t leader, std::uint32_t block) {
  const std::vector<Connection> followers = nodes.followers(leader, block);
  const std::vector<Connection> leaders = nodes.other_leaders(leader, block);
  Step node_sum{.opcode = Opcode::send, .source = input(block), .sends = leaders};
  if (!followers.empty()) {
    node_sum.opcode = Opcode::recv_reduce_copy_send;
    node_sum.destination = output(block);
    node_sum.receives = followers;
  }
  plan.add(leader, block, std::move(node_sum));
  plan.add(leader, block,
           {.opcode = followers.empty() ? Opcode::recv_reduce_copy : Opcode::recv_reduce_copy_send,
            .source = followers.empty() ? input(block) : output(block),
            .destination = output(block),
            .receives = leaders,
            .sends = followers,
            .local_position = nodes.node_of(leader),
            .final = true});
}

std::vector<Connection> joined(std::vector<Connection> first, const std::vector<Connection>& then) {
  first.insert(first.end(), then.begin(), then.end());
  return first;
}

}  // namespace

void leaders_all_reduce(PlanBuilder& plan, const PlanRequest& request) {
  const Nodes nodes(request, 0);
  for (std::uint32_t r = 0; r < request.rank_count; ++r) {
    const std::uint32_t leader = nodes.leader_of(r);
    for (std::uint32_t b = 0; b < request.block_count; ++b) {
      if (r == leader) {
        leader_all_reduces(plan, nodes, r, b);
        continue;
      }
      plan.add(r, b, {.opcode = Opcode::send, .source = input(b), .sends = {with(leader, b)}});
      plan.add(r, b, {.opcode = Opcode::recv, .destination = output(b), .receives = {with(leader, b)}});
    }
  }
}

void leaders_broadcast(PlanBuilder& plan, const PlanRequest& request) {
  const Nodes nodes(request, request.root);
  for (std::uint32_t r = 0; r < request.rank_count; ++r) {
    const std::uint32_t leader = nodes.leader_of(r);
    for (std::uint32_t b = 0; b < request.block_count; ++b) {
      const std::vector<Connection> followers = nodes.followers(leader, b);
      if (r == request.root) {
        // The far ones first.
        plan.add(r, b,
                 {.opcode = Opcode::send,
                  .source = input(b),
                  .sends = joined(nodes.other_leaders(r, b), followers)});
        if (!request.in_place)
          plan.add(r, b, {.opcode = Opcode::copy, .source = input(b), .destination = output(b)});
        continue;
      }
      const bool passes_on = r == leader && !followers.empty();
      plan.add(r, b,
               {.opcode = passes_on ? Opcode::recv_copy_send : Opcode::recv,
                .destination = output(b),
                .receives = {with(r == leader ? request.root : leader, b)},
                .sends = passes_on ? followers : std::vector<Connection>{}});
    }
  }
}

void leaders_reduce(PlanBuilder& plan, const PlanRequest& request) {
  const Nodes nodes(request, request.root);
  for (std::uint32_t r = 0; r < request.rank_count; ++r) {
    const std::uint32_t leader = nodes.leader_of(r);
    for (std::uint32_t b = 0; b < request.block_count; ++b) {
      const std::vector<Connection> followers = nodes.followers(leader, b);
      Step step{.opcode = Opcode::send, .source = input(b)};
      if (r == request.root) {
        step.opcode = Opcode::recv_reduce_copy;
        step.destination = output(b);
        step.receives = joined(followers, nodes.other_leaders(r, b));
        step.final = true;
      } else {
        step.sends = {with(r == leader ? request.root : leader, b)};
        if (r == leader && !followers.empty()) {
          step.opcode = Opcode::recv_reduce_send;
          step.receives = followers;
        }
      }
      plan.add(r, b, std::move(step));
    }
  }
}

}  // namespace starling::algorithms
