// AllToNext (GC3 section 7.4): every rank's buffer goes to the next rank; the first one gets nothing.
//
// Spread over nodes of several ranks, what the last rank of a node sends to the first of the next crosses in
// one part for each rank of the node, over a link of its own:
//
//   node 0:  0 ──▶ 1 ──▶ 2       rank 2's parts:  2 ─▶ 0 ─▶ 3        part 0
//                  parts │                         2 ─▶ 1 ─▶ 4 ─▶ 3   part 1
//   node 1:  3 ──▶ 4 ──▶ 5                         2 ──────▶ 5 ─▶ 3   part 2
//
// A block sends what is its rank's own before it waits for anything, and a tile of the input is sent before
// that of the output is written: so nothing stands for ever with two slots, and it is right in place, too.
#include "plan/algorithms.h"

namespace starling::algorithms {
namespace {

void say_what_outputs_hold(PlanBuilder& plan, std::uint32_t rank_count, std::uint32_t chunks) {
  Postcondition postcondition;
  for (std::uint32_t r = 1; r < rank_count; ++r) postcondition.push_back({r, 0, chunks, {{r - 1, 0}}});
  plan.set_postcondition(std::move(postcondition));
}

// One block of a rank of a node; part g of the block is its g-th chunk.
struct Spread {
  PlanBuilder& plan;
  std::uint32_t block;
  std::uint32_t rank;
  std::uint32_t node;
  std::uint32_t nodes;
  std::uint32_t size;  // ranks of a node; two or more

  std::uint32_t place() const { return rank % size; }
  std::uint32_t first() const { return node * size; }  // rank of the node
  std::uint32_t chunk(std::uint32_t part) const { return block * size + part; }
  bool is_last() const { return place() + 1 == size; }

  void send(std::uint32_t part, std::uint32_t to, std::uint32_t chunks = 1) const {
    plan.add(
        rank, block,
        {.opcode = Opcode::send, .source = input(chunk(part)), .sends = {with(to, block)}, .chunks = chunks});
  }
  void receive(std::uint32_t part, std::uint32_t from, std::uint32_t chunks = 1) const {
    plan.add(rank, block,
             {.opcode = Opcode::recv,
              .destination = output(chunk(part)),
              .receives = {with(from, block)},
              .chunks = chunks});
  }
  void pass_on(std::uint32_t part, std::uint32_t from, std::uint32_t to) const {
    plan.add(rank, block,
             {.opcode = Opcode::recv_send,
              .receives = {with(from, block)},
              .sends = {with(to, block)},
              .size = output(chunk(part))});
  }

  void out_of_the_node() const {
    if (node + 1 == nodes) return;
    if (!is_last()) return pass_on(place(), first() + size - 1, rank + size);
    // The longest ways first: part 0 needs nobody to pass it on in the other node, the last part nobody here.
    for (std::uint32_t part = 1; part + 1 < size; ++part) send(part, first() + part);
    send(0, first());
    send(place(), rank + size);
  }

  void into_the_node() const {
    if (node == 0) return;
    if (place() != 0) return pass_on(place(), rank - size, first());
    receive(0, rank - size);
    for (std::uint32_t part = size - 1; part > 0; --part) receive(part, rank + part);
  }

  void all() const {
    for_each_piece(size, [&](std::uint32_t part, std::uint32_t count) {
      if (!is_last()) send(part, rank + 1, count);
      if (part == 0) out_of_the_node();
      if (place() != 0) receive(part, rank - 1, count);
    });
    into_the_node();
  }
};

}  // namespace

void direct_all_to_next(PlanBuilder& plan, const PlanRequest& request) {
  for (std::uint32_t r = 0; r < request.rank_count; ++r) {
    for (std::uint32_t b = 0; b < request.block_count; ++b) {
      if (r + 1 < request.rank_count)
        plan.add(r, b, {.opcode = Opcode::send, .source = input(b), .sends = {with(r + 1, b)}});
      if (r > 0)
        plan.add(r, b, {.opcode = Opcode::recv, .destination = output(b), .receives = {with(r - 1, b)}});
    }
  }
  say_what_outputs_hold(plan, request.rank_count, request.block_count);
}

void spread_all_to_next(PlanBuilder& plan, const PlanRequest& request) {
  const std::uint32_t size = request.rank_count / request.node_count;
  if (size == 1) return direct_all_to_next(plan, request);
  for (std::uint32_t r = 0; r < request.rank_count; ++r)
    for (std::uint32_t b = 0; b < request.block_count; ++b)
      Spread{plan, b, r, r / size, request.node_count, size}.all();
  say_what_outputs_hold(plan, request.rank_count, size * request.block_count);
}

}  // namespace starling::algorithms
