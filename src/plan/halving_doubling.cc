// Recursive halving, then doubling: twice log2(n) steps, and each byte moved as seldom as in a ring.
#include <bit>

#include "plan/algorithms.h"

namespace starling::algorithms {
namespace {

// What rank r of the largest power of two does in its block. Sums lie in the output, which nobody looks at
// before the end; of two operands the one with the least rank in it comes first, so both partners bracket
// alike.
class HalvingDoubling {
 public:
  HalvingDoubling(PlanBuilder& plan, std::uint32_t power, std::uint32_t rank, std::uint32_t block)
      : plan_(plan), power_(power), rank_(rank), block_(block), offset_(block * power) {}

  // A rank beyond the power of two lends its input.
  void take_in(std::uint32_t lender) {
    for_each_piece(power_, [&](std::uint32_t first, std::uint32_t count) {
      reduce_from(lender, 0, first, count, false);
    });
    sums_ = true;
  }

  void halve(std::uint32_t distance) {
    const std::uint32_t peer = rank_ ^ distance;
    const std::uint32_t kept = rank_ & ~(distance - 1);
    for_each_piece(distance, [&](std::uint32_t first, std::uint32_t count) {
      plan_.add(rank_, block_,
                {.opcode = Opcode::send,
                 .source = at((kept ^ distance) + first),
                 .sends = {with(peer, block_)},
                 .chunks = count});
      reduce_from(peer, (rank_ & distance) != 0 ? 1 : 0, kept + first, count, distance == 1);
    });
    sums_ = true;
  }

  void double_up(std::uint32_t distance) {
    const std::uint32_t peer = rank_ ^ distance;
    const std::uint32_t own = rank_ & ~(distance - 1);
    for_each_piece(distance, [&](std::uint32_t first, std::uint32_t count) {
      if (distance > 1) send_result(peer, own + first, count);  // the last halving has sent the first one
      receive_result(peer, (own ^ distance) + first, count);
    });
  }

  void give_back(std::uint32_t lender) {
    for_each_piece(power_,
                   [&](std::uint32_t first, std::uint32_t count) { send_result(lender, first, count); });
  }

  // The lender's own part of it.
  void lend(std::uint32_t peer) {
    for_each_piece(power_, [&](std::uint32_t first, std::uint32_t count) {
      plan_.add(rank_, block_,
                {.opcode = Opcode::send,
                 .source = input(offset_ + first),
                 .sends = {with(peer, block_)},
                 .chunks = count});
    });
    for_each_piece(power_,
                   [&](std::uint32_t first, std::uint32_t count) { receive_result(peer, first, count); });
  }

 private:
  Operand at(std::uint32_t chunk) const { return sums_ ? output(offset_ + chunk) : input(offset_ + chunk); }

  void reduce_from(std::uint32_t peer, std::uint32_t local_position, std::uint32_t chunk, std::uint32_t count,
                   bool last) {
    Step step{.opcode = last ? Opcode::recv_reduce_copy_send : Opcode::recv_reduce_copy,
              .source = at(chunk),
              .destination = output(offset_ + chunk),
              .receives = {with(peer, block_)},
              .local_position = local_position,
              .chunks = count,
              .final = last};
    if (last) step.sends = step.receives;
    plan_.add(rank_, block_, std::move(step));
  }

  void send_result(std::uint32_t peer, std::uint32_t chunk, std::uint32_t count) {
    plan_.add(rank_, block_,
              {.opcode = Opcode::send,
               .source = output(offset_ + chunk),
               .sends = {with(peer, block_)},
               .chunks = count});
  }

  void receive_result(std::uint32_t peer, std::uint32_t chunk, std::uint32_t count) {
    plan_.add(rank_, block_,
              {.opcode = Opcode::recv,
               .destination = output(offset_ + chunk),
               .receives = {with(peer, block_)},
               .chunks = count});
  }

  PlanBuilder& plan_;
  const std::uint32_t power_;
  const std::uint32_t rank_;
  const std::uint32_t block_;
  const std::uint32_t offset_;
  bool sums_ = false;  // the output has sums already
};

}  // namespace

// Ranks beyond the largest power of two lend their input to a partner, and get its output.
void halving_doubling_all_reduce(PlanBuilder& plan, const PlanRequest& request) {
  const std::uint32_t power = std::bit_floor(request.rank_count);
  for (std::uint32_t r = 0; r < request.rank_count; ++r) {
    for (std::uint32_t b = 0; b < request.block_count; ++b) {
      HalvingDoubling block(plan, power, r, b);
      if (r >= power) {
        block.lend(r - power);
        continue;
      }
      const bool has_lender = r + power < request.rank_count;
      if (has_lender) block.take_in(r + power);
      for (std::uint32_t distance = power / 2; distance > 0; distance /= 2) block.halve(distance);
      for (std::uint32_t distance = 1; distance < power; distance *= 2) block.double_up(distance);
      if (has_lender) block.give_back(r + power);
    }
  }
}

}  // namespace starling::algorithms
