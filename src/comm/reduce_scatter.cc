#include "comm/lowering.h"

namespace starling {

// Rank r gets the reduction of everybody's part r.
Shape reduce_scatter_shape(const LoweringContext& context, const starling_operation& call) {
  const uint64_t bytes = message_bytes(call);
  const uint64_t element = element_bytes(call);
  Shape shape{.collective = Collective::kReduceScatter, .reduces = true};
  shape.input = {call.input, bytes, call.input_counts, call.input_offsets};
  shape.output = {call.output, bytes};
  const uint64_t total =
      call.input_counts ? sum_of_counts(call.input_counts, context.size) * element : bytes * context.size;
  require_buffer(call.input, total, "input");
  require_buffer(call.output, bytes, "output");
  uint64_t own = context.rank * bytes;
  if (call.input_counts != nullptr)
    own = element * (call.input_offsets ? call.input_offsets[context.rank]
                                        : sum_of_counts(call.input_counts, context.rank));
  shape.in_place = call.output == static_cast<const std::byte*>(call.input) + own;
  shape.choice_bytes = total;
  refuse_overlap(
      shape,
      call.input_counts ? end_of_parts(call.input_counts, call.input_offsets, context.size) * element : total,
      bytes);
  return shape;
}

}  // namespace starling
