// All-to-all in steps that put many small messages between nodes together (GC3 section 7.3). For parts that
// are equally long: who passes a part on does not know how long it would be.
//
// In round k the nodes n and m with n + m = k (modulo their number) exchange what they have for each other;
// block b runs every block_count-th round. Both sides send before they receive, and read their parts for a
// node before those from it come: so the exchange is right in place, too.
#include "plan/algorithms.h"

namespace starling::algorithms {
namespace {

// A rank in a round, by its place on its node.
struct Round {
  PlanBuilder& plan;
  std::uint32_t block;
  std::uint32_t size;  // ranks of a node
  std::uint32_t node;
  std::uint32_t other;  // node
  std::uint32_t place;
  std::uint32_t scratch_first;
  bool in_place;

  std::uint32_t rank() const { return node * size + place; }
  Connection neighbour(std::uint32_t to) const { return with(node * size + to, block); }
  Connection beyond(std::uint32_t to) const { return with(other * size + to, block); }

  void send(Operand source, Connection to, std::uint32_t chunks = 1) const {
    plan.add(rank(), block, {.opcode = Opcode::send, .source = source, .sends = {to}, .chunks = chunks});
  }
  void receive(Operand destination, Connection from, std::uint32_t chunks = 1) const {
    plan.add(rank(), block,
             {.opcode = Opcode::recv, .destination = destination, .receives = {from}, .chunks = chunks});
  }
  void copy(Operand source, Operand destination, std::uint32_t chunks = 1) const {
    plan.add(rank(), block,
             {.opcode = Opcode::copy, .source = source, .destination = destination, .chunks = chunks});
  }

  // Pairs inside a node: in round k, ranks whose places add up to k exchange their parts.
  void inside() const {
    for (std::uint32_t turn = 0; turn < size; ++turn) {
      const std::uint32_t peer = around(turn, -std::int64_t{place}, size);
      const std::uint32_t part = node * size + peer;
      if (peer == place) {
        if (!in_place) copy(input(part), output(part));
        continue;
      }
      send(input(part), neighbour(peer));
      receive(output(part), neighbour(peer));
    }
  }

  // Nodes of one rank have nothing to put together.
  void direct() const {
    send(input(other), beyond(0));
    receive(output(other), beyond(0));
  }

  // What the node has for my counterpart is collected here, and crosses as one message.
  void two_steps() const {
    for (std::uint32_t step = 1; step < size; ++step) {
      const std::uint32_t to = around(place, step, size);
      const std::uint32_t from = around(place, -std::int64_t{step}, size);
      send(input(other * size + to), neighbour(to));
      receive(scratch(scratch_first + from), neighbour(from));
    }
    copy(input(other * size + place), scratch(scratch_first + place));
    for_each_piece(size, [&](std::uint32_t first, std::uint32_t count) {
      send(scratch(scratch_first + first), beyond(place), count);
      receive(output(other * size + first), beyond(place), count);
    });
  }

  // All that the node has for the other is collected on one rank, its gate for that node. It crosses as one
  // message to the other's gate for this one, which gives it out.
  void three_steps() const {
    const std::uint32_t gate = other % size;
    if (place != gate) {
      for_each_piece(size, [&](std::uint32_t first, std::uint32_t count) {
        send(input(other * size + first), neighbour(gate), count);
      });
      for (std::uint32_t i = 0; i < size; ++i) receive(output(other * size + i), neighbour(gate));
      return;
    }
    const std::uint32_t come = scratch_first + size * size;
    for (std::uint32_t i = 0; i < size; ++i) {
      const std::uint32_t row = scratch_first + i * size;
      for_each_piece(size, [&](std::uint32_t first, std::uint32_t count) {
        if (i == place)
          copy(input(other * size + first), scratch(row + first), count);
        else
          receive(scratch(row + first), neighbour(i), count);
      });
    }
    for_each_piece(size * size, [&](std::uint32_t first, std::uint32_t count) {
      send(scratch(scratch_first + first), beyond(node % size), count);
      receive(scratch(come + first), beyond(node % size), count);
    });
    for (std::uint32_t i = 0; i < size; ++i) {
      for (std::uint32_t g = 0; g < size; ++g) {
        if (g == place)
          copy(scratch(come + i * size + g), output(other * size + i));
        else
          send(scratch(come + i * size + g), neighbour(g));
      }
    }
  }
};

void in_rounds(PlanBuilder& plan, const PlanRequest& request, std::uint32_t scratch_chunks,
               void (Round::*between_nodes)() const) {
  const std::uint32_t nodes = request.node_count;
  const std::uint32_t size = request.rank_count / nodes;
  for (std::uint32_t r = 0; r < request.rank_count; ++r) {
    plan.set_blocks(r, request.block_count);
    if (size > 1) plan.set_scratch(r, request.block_count * scratch_chunks);
    for (std::uint32_t round = 0; round < nodes; ++round) {
      const std::uint32_t block = round % request.block_count;
      const std::uint32_t node = r / size;
      const std::uint32_t other = around(round, -std::int64_t{node}, nodes);
      const Round part{plan, block, size, node, other, r % size, block * scratch_chunks, request.in_place};
      if (other == node)
        part.inside();
      else if (size == 1)
        part.direct();
      else
        (part.*between_nodes)();
    }
  }
}

}  // namespace

void two_step_all_to_all(PlanBuilder& plan, const PlanRequest& request) {
  in_rounds(plan, request, request.rank_count / request.node_count, &Round::two_steps);
}

void three_step_all_to_all(PlanBuilder& plan, const PlanRequest& request) {
  const std::uint32_t size = request.rank_count / request.node_count;
  in_rounds(plan, request, 2 * size * size, &Round::three_steps);
}

}  // namespace starling::algorithms
