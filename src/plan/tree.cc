// Binary trees: a logarithmic number of steps; tiles follow each other up and down as in a pipe.
#include <algorithm>
#include <optional>

#include "plan/algorithms.h"

namespace starling::algorithms {
namespace {

// Ranks in a row; the one in the middle is the root, and each half of the others is a tree of its own. Roots
// stand at odd places: so in two trees whose rows are shifted by one, no rank has children in both.
class Tree {
 public:
  // The row begins with the rank `first` and goes on upwards, past the last rank to 0.
  Tree(std::uint32_t rank_count, std::uint32_t first) : nodes_(rank_count) {
    for (std::uint32_t place = 0; place < rank_count; ++place)
      row_.push_back(around(first, place, rank_count));
    grow(0, rank_count);
  }

  struct Node {
    std::optional<std::uint32_t> parent;
    std::vector<std::uint32_t> children;
    std::uint32_t least = 0;  // of the ranks from here downwards
  };
  const Node& of(std::uint32_t rank) const { return nodes_[rank]; }

 private:
  std::uint32_t grow(std::uint32_t begin, std::uint32_t end) {
    const std::uint32_t middle = begin + middle_place(end - begin);
    const std::uint32_t root = row_[middle];
    nodes_[root].least = root;
    for (const auto& [from, to] : {std::pair{begin, middle}, std::pair{middle + 1, end}}) {
      if (from == to) continue;
      const std::uint32_t child = grow(from, to);
      nodes_[child].parent = root;
      nodes_[root].children.push_back(child);
      nodes_[root].least = std::min(nodes_[root].least, nodes_[child].least);
    }
    return root;
  }

 public:
  static std::uint32_t middle_place(std::uint32_t count) { return count < 2 ? 0 : (count / 2) | 1; }

 private:
  std::vector<std::uint32_t> row_;
  std::vector<Node> nodes_;
};

Tree tree_around(std::uint32_t root, std::uint32_t rank_count) {
  return {rank_count, around(root, -std::int64_t{Tree::middle_place(rank_count)}, rank_count)};
}

std::vector<Connection> children_of(const Tree::Node& node, std::uint32_t block) {
  std::vector<Connection> connections;
  for (const std::uint32_t child : node.children) connections.push_back(with(child, block));
  return connections;
}

// What comes from below and the own chunk, reduced: whatever holds the least rank comes first.
Step up(const Tree& tree, std::uint32_t rank, std::uint32_t block, std::uint32_t chunk) {
  const Tree::Node& node = tree.of(rank);
  Step step{.source = input(chunk)};
  std::vector<std::uint32_t> children = node.children;
  std::sort(children.begin(), children.end(),
            [&](std::uint32_t a, std::uint32_t b) { return tree.of(a).least < tree.of(b).least; });
  for (const std::uint32_t child : children) {
    step.receives.push_back(with(child, block));
    if (tree.of(child).least < rank) ++step.local_position;
  }
  if (node.parent) step.sends = {with(*node.parent, block)};
  step.opcode = children.empty() ? Opcode::send
                : node.parent    ? Opcode::recv_reduce_send
                                 : Opcode::recv_reduce_copy;
  if (!node.parent) {
    step.destination = output(chunk);
    step.final = true;
  }
  return step;
}

// For all but the root.
Step down(const Tree::Node& node, std::uint32_t block, std::uint32_t chunk) {
  return {.opcode = node.children.empty() ? Opcode::recv : Opcode::recv_copy_send,
          .destination = output(chunk),
          .receives = {with(*node.parent, block)},
          .sends = children_of(node, block)};
}

}  // namespace

// Two trees, each with half of the data: the leaves of one are the inner ranks of the other. Everybody's
// steps follow each other as up, up, down, down, so both ends of a connection see its messages in one order.
void double_tree_all_reduce(PlanBuilder& plan, const PlanRequest& request) {
  const Tree trees[] = {{request.rank_count, 0}, {request.rank_count, 1}};
  for (std::uint32_t r = 0; r < request.rank_count; ++r) {
    for (std::uint32_t b = 0; b < request.block_count; ++b) {
      for (std::uint32_t t = 0; t < 2; ++t) plan.add(r, b, up(trees[t], r, b, 2 * b + t));
      for (std::uint32_t t = 0; t < 2; ++t) {
        const Tree::Node& node = trees[t].of(r);
        const std::uint32_t chunk = 2 * b + t;
        plan.add(r, b,
                 node.parent
                     ? down(node, b, chunk)
                     : Step{.opcode = Opcode::send, .source = output(chunk), .sends = children_of(node, b)});
      }
    }
  }
}

void tree_broadcast(PlanBuilder& plan, const PlanRequest& request) {
  const Tree tree = tree_around(request.root, request.rank_count);
  for (std::uint32_t r = 0; r < request.rank_count; ++r) {
    const Tree::Node& node = tree.of(r);
    for (std::uint32_t b = 0; b < request.block_count; ++b) {
      if (node.parent) {
        plan.add(r, b, down(node, b, b));
        continue;
      }
      plan.add(r, b, {.opcode = Opcode::send, .source = input(b), .sends = children_of(node, b)});
      if (!request.in_place)
        plan.add(r, b, {.opcode = Opcode::copy, .source = input(b), .destination = output(b)});
    }
  }
}

void tree_reduce(PlanBuilder& plan, const PlanRequest& request) {
  const Tree tree = tree_around(request.root, request.rank_count);
  for (std::uint32_t r = 0; r < request.rank_count; ++r) {
    for (std::uint32_t b = 0; b < request.block_count; ++b) plan.add(r, b, up(tree, r, b, b));
  }
}

}  // namespace starling::algorithms
