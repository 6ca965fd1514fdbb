// Rings: every rank talks to its two neighbours alone, and every byte crosses each link as few times as can
// be.
#include "plan/algorithms.h"

namespace starling::algorithms {

// A reduce-scatter that goes round once, then an all-gather: rank r starts chunk r on its way, ends up with
// the sum of chunk r + 1, and passes the sums on. A partial sum never touches local memory
// (recv_reduce_send).
void ring_all_reduce(PlanBuilder& plan, const PlanRequest& request) {
  const std::uint32_t n = request.rank_count;
  for (std::uint32_t r = 0; r < n; ++r) {
    for (std::uint32_t b = 0; b < request.block_count; ++b) {
      const Connection previous = with(around(r, -1, n), b);
      const Connection next = with(around(r, 1, n), b);
      const auto chunk = [&](std::int64_t steps_back) { return b * n + around(r, -steps_back, n); };
      plan.add(r, b, {.opcode = Opcode::send, .source = input(chunk(0)), .sends = {next}});
      for (std::uint32_t s = 1; s + 1 < n; ++s) {
        plan.add(r, b,
                 {.opcode = Opcode::recv_reduce_send,
                  .source = input(chunk(s)),
                  .receives = {previous},
                  .sends = {next},
                  .local_position = 1});
      }
      plan.add(r, b,
               {.opcode = Opcode::recv_reduce_copy_send,
                .source = input(chunk(n - 1)),
                .destination = output(chunk(n - 1)),
                .receives = {previous},
                .sends = {next},
                .local_position = 1,
                .final = true});
      for (std::uint32_t s = 0; s + 2 < n; ++s) {
        plan.add(r, b,
                 {.opcode = Opcode::recv_copy_send,
                  .destination = output(chunk(s)),
                  .receives = {previous},
                  .sends = {next}});
      }
      plan.add(r, b, {.opcode = Opcode::recv, .destination = output(chunk(n - 2)), .receives = {previous}});
    }
  }
}

// The same ring, in which every message is put: what lands is a sum of the ranks before, in scratch where the
// input's own place still holds what is to be added, or the result.
void ring_put_all_reduce(PlanBuilder& plan, const PlanRequest& request) {
  const std::uint32_t n = request.rank_count;
  const auto add = [&](std::uint32_t r, std::uint32_t b, std::uint32_t step) {
    const Connection previous = with(around(r, -1, n), b);
    const Connection next = with(around(r, 1, n), b);
    const auto chunk = [&](std::int64_t steps_back) { return b * n + around(r, -steps_back, n); };
    const auto receive = [&](Operand to, Operand size) {
      plan.add(
          r, b,
          {.opcode = Opcode::recv, .destination = to, .receives = {previous}, .size = size, .put = true});
    };
    if (step == 0) {
      plan.add(r, b, {.opcode = Opcode::send, .source = input(chunk(0)), .sends = {next}, .put = true});
    } else if (step < n) {
      const bool last = step + 1 == n;
      const Operand own = input(chunk(step));
      const Operand sum = request.in_place ? scratch(b * (n - 1) + step - 1) : output(chunk(step));
      receive(sum, own);
      plan.add(r, b,
               {.opcode = Opcode::reduce_send,
                .source = own,
                .destination = sum,
                .sends = {next},
                .size = own,
                .final = last,
                .put = true});
      if (request.in_place && last)
        plan.add(r, b,
                 {.opcode = Opcode::copy, .source = sum, .destination = output(chunk(step)), .size = own});
    } else {
      const Operand result = output(chunk(step - n));
      receive(result, result);
      if (step + 2 < 2 * n)
        plan.add(r, b, {.opcode = Opcode::send, .source = result, .sends = {next}, .put = true});
    }
  };
  for (std::uint32_t r = 0; r < n; ++r) {
    if (request.in_place) plan.set_scratch(r, request.block_count * (n - 1));
    for (std::uint32_t b = 0; b < request.block_count; ++b)
      for (std::uint32_t step = 0; step + 1 < 2 * n; ++step) add(r, b, step);
  }
}

// The rings below, with every message put: what is only kept, or kept and passed on, lands where it is
// wanted; a sum in scratch, or in the output, if that is not the input.
void ring_put_all_gather(PlanBuilder& plan, const PlanRequest& request) {
  const std::uint32_t n = request.rank_count, blocks = request.block_count;
  for (std::uint32_t r = 0; r < n; ++r)
    for (std::uint32_t b = 0; b < blocks; ++b) {
      const Connection previous = with(around(r, -1, n), b), next = with(around(r, 1, n), b);
      if (!request.in_place)
        plan.add(r, b, {.opcode = Opcode::copy, .source = input(b), .destination = output(r * blocks + b)});
      plan.add(r, b, {.opcode = Opcode::send, .source = input(b), .sends = {next}, .put = true});
      for (std::uint32_t s = 1; s < n; ++s) {
        const Operand part = output(around(r, -std::int64_t(s), n) * blocks + b);
        plan.add(r, b, {.opcode = Opcode::recv, .destination = part, .receives = {previous}, .put = true});
        if (s + 1 < n) plan.add(r, b, {.opcode = Opcode::send, .source = part, .sends = {next}, .put = true});
      }
    }
}

void ring_put_reduce_scatter(PlanBuilder& plan, const PlanRequest& request) {
  const std::uint32_t n = request.rank_count, blocks = request.block_count;
  const std::uint32_t sums = request.in_place ? n - 1 : n - 2;  // of a block, in scratch
  for (std::uint32_t r = 0; r < n; ++r) {
    plan.set_scratch(r, blocks * sums);
    for (std::uint32_t b = 0; b < blocks; ++b) {
      const Connection previous = with(around(r, -1, n), b), next = with(around(r, 1, n), b);
      const auto part_of = [&](std::int64_t steps_back) {
        return input(around(r, -steps_back, n) * blocks + b);
      };
      plan.add(r, b, {.opcode = Opcode::send, .source = part_of(1), .sends = {next}, .put = true});
      for (std::uint32_t s = 1; s < n; ++s) {
        const bool last = s + 1 == n;
        const Operand own = part_of(s + 1);
        const Operand sum = last && !request.in_place ? output(b) : scratch(b * sums + s - 1);
        plan.add(
            r, b,
            {.opcode = Opcode::recv, .destination = sum, .receives = {previous}, .size = own, .put = true});
        if (last)
          plan.add(r, b,
                   {.opcode = Opcode::reduce, .source = own, .destination = sum, .size = own, .final = true});
        else
          plan.add(r, b,
                   {.opcode = Opcode::reduce_send,
                    .source = own,
                    .destination = sum,
                    .sends = {next},
                    .size = own,
                    .put = true});
        if (last && request.in_place)
          plan.add(r, b, {.opcode = Opcode::copy, .source = sum, .destination = output(b), .size = own});
      }
    }
  }
}

// Each rank's part goes round the ring and stays with everyone it passes.
void ring_all_gather(PlanBuilder& plan, const PlanRequest& request) {
  const std::uint32_t n = request.rank_count;
  const std::uint32_t blocks = request.block_count;
  for (std::uint32_t r = 0; r < n; ++r) {
    for (std::uint32_t b = 0; b < blocks; ++b) {
      const Connection previous = with(around(r, -1, n), b);
      const Connection next = with(around(r, 1, n), b);
      const auto part_of = [&](std::int64_t steps_back) {
        return output(around(r, -steps_back, n) * blocks + b);
      };
      plan.add(r, b, {.opcode = Opcode::send, .source = input(b), .sends = {next}});
      if (!request.in_place) {
        plan.add(r, b, {.opcode = Opcode::copy, .source = input(b), .destination = part_of(0)});
      }
      for (std::uint32_t s = 1; s + 1 < n; ++s) {
        plan.add(r, b,
                 {.opcode = Opcode::recv_copy_send,
                  .destination = part_of(s),
                  .receives = {previous},
                  .sends = {next}});
      }
      plan.add(r, b, {.opcode = Opcode::recv, .destination = part_of(n - 1), .receives = {previous}});
    }
  }
}

// The part of rank g starts at rank g + 1 and comes home as a sum.
void ring_reduce_scatter(PlanBuilder& plan, const PlanRequest& request) {
  const std::uint32_t n = request.rank_count;
  const std::uint32_t blocks = request.block_count;
  for (std::uint32_t r = 0; r < n; ++r) {
    for (std::uint32_t b = 0; b < blocks; ++b) {
      const Connection previous = with(around(r, -1, n), b);
      const Connection next = with(around(r, 1, n), b);
      const auto part_of = [&](std::int64_t steps_back) {
        return input(around(r, -steps_back, n) * blocks + b);
      };
      plan.add(r, b, {.opcode = Opcode::send, .source = part_of(1), .sends = {next}});
      for (std::uint32_t s = 2; s < n; ++s) {
        plan.add(r, b,
                 {.opcode = Opcode::recv_reduce_send,
                  .source = part_of(s),
                  .receives = {previous},
                  .sends = {next},
                  .local_position = 1});
      }
      plan.add(r, b,
               {.opcode = Opcode::recv_reduce_copy,
                .source = part_of(0),
                .destination = output(b),
                .receives = {previous},
                .local_position = 1,
                .final = true});
    }
  }
}

}  // namespace starling::algorithms
