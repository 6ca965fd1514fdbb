// The hierarchical all-reduce (GC3 Fig. 3): rings inside the nodes, rings between them. Where nodes are
// joined by less than what joins the ranks of one, each byte crosses between them as seldom as in a ring of
// the nodes alone.
#include "plan/algorithms.h"

namespace starling::algorithms {
namespace {

// A ring that one rank and block is part of, for pieces of the buffer that lie one after the other.
struct Ring {
  std::uint32_t size;
  std::uint32_t place;  // of the rank
  Connection previous;
  Connection next;
  std::uint32_t first;   // chunk where the first piece begins
  std::uint32_t stride;  // chunks between the beginnings of two pieces
  std::uint32_t chunks;  // of a message

  std::uint32_t chunk(std::int64_t steps_back) const {
    return first + around(place, -steps_back, size) * stride;
  }
};

class HierarchicalBlock {
 public:
  HierarchicalBlock(PlanBuilder& plan, std::uint32_t rank, std::uint32_t block)
      : plan_(plan), rank_(rank), block_(block) {}

  // Piece p starts at place p + 1 and ends at place p as a sum of all, in the output. What the first place
  // adds comes first, so that sums have one order on all ranks. `closes`: the sum is final, and goes on round
  // the ring.
  void reduce_round(const Ring& ring, BufferKind from, bool closes) {
    const std::uint32_t local_position = ring.place == 0 ? 0 : 1;
    add(ring, {.opcode = Opcode::send, .source = {from, ring.chunk(1)}, .sends = {ring.next}});
    for (std::uint32_t s = 2; s < ring.size; ++s) {
      add(ring, {.opcode = Opcode::recv_reduce_send,
                 .source = {from, ring.chunk(s)},
                 .receives = {ring.previous},
                 .sends = {ring.next},
                 .local_position = local_position});
    }
    Step last{.opcode = closes ? Opcode::recv_reduce_copy_send : Opcode::recv_reduce_copy,
              .source = {from, ring.chunk(0)},
              .destination = output(ring.chunk(0)),
              .receives = {ring.previous},
              .local_position = local_position,
              .final = closes};
    if (closes) last.sends = {ring.next};
    add(ring, std::move(last));
  }

  void send_own(const Ring& ring) {
    add(ring, {.opcode = Opcode::send, .source = output(ring.chunk(0)), .sends = {ring.next}});
  }

  // The own piece is on its way: those of the others come past.
  void pass_round(const Ring& ring) {
    for (std::uint32_t s = 1; s + 1 < ring.size; ++s) {
      add(ring, {.opcode = Opcode::recv_copy_send,
                 .destination = output(ring.chunk(s)),
                 .receives = {ring.previous},
                 .sends = {ring.next}});
    }
    add(ring, {.opcode = Opcode::recv,
               .destination = output(ring.chunk(ring.size - 1)),
               .receives = {ring.previous}});
  }

 private:
  void add(const Ring& ring, Step step) {
    step.chunks = ring.chunks;
    plan_.add(rank_, block_, std::move(step));
  }

  PlanBuilder& plan_;
  const std::uint32_t rank_;
  const std::uint32_t block_;
};

}  // namespace

// Rank g of a node sums up piece g of the buffer, which has a chunk for each node; chunk n of it is summed up
// on node n. Each block runs the three phases tile by tile; blocks that are in different phases use both
// kinds of links at once.
void hierarchical_all_reduce(PlanBuilder& plan, const PlanRequest& request) {
  const std::uint32_t nodes = request.node_count;
  const std::uint32_t size = request.rank_count / nodes;
  for (std::uint32_t r = 0; r < request.rank_count; ++r) {
    const std::uint32_t node = r / size;
    const std::uint32_t place = r % size;
    for (std::uint32_t b = 0; b < request.block_count; ++b) {
      HierarchicalBlock block(plan, r, b);
      const std::uint32_t offset = b * request.rank_count;
      const auto in_node = [&](std::int64_t to) { return with(node * size + around(place, to, size), b); };
      const auto in_column = [&](std::int64_t to) { return with(around(node, to, nodes) * size + place, b); };
      const auto inside = [&](auto&& visit) {
        if (size == 1) return;
        for_each_piece(nodes, [&](std::uint32_t first, std::uint32_t count) {
          visit(Ring{size, place, in_node(-1), in_node(1), offset + first, nodes, count});
        });
      };
      inside([&](const Ring& ring) { block.reduce_round(ring, BufferKind::kInput, false); });
      const Ring across{nodes, node, in_column(-1), in_column(1), offset + place * nodes, 1, 1};
      block.reduce_round(across, size == 1 ? BufferKind::kInput : BufferKind::kOutput, true);
      block.pass_round(across);
      inside([&](const Ring& ring) {
        block.send_own(ring);
        block.pass_round(ring);
      });
    }
  }
}

}  // namespace starling::algorithms
