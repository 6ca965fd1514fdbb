#include "comm/lowering.h"

namespace starling {

// Every rank gets the parts of all ranks, in rank order; with output_counts, parts of their own lengths.
Shape all_gather_shape(const LoweringContext& context, const starling_operation& call) {
  const uint64_t bytes = message_bytes(call);
  Shape shape{.collective = Collective::kAllGather};
  shape.input = {call.input, bytes};
  shape.output = {call.output, bytes, call.output_counts, call.output_offsets};
  const uint64_t element = element_bytes(call);
  const uint64_t total =
      call.output_counts ? sum_of_counts(call.output_counts, context.size) * element : bytes * context.size;
  require_buffer(call.input, bytes, "input");
  require_buffer(call.output, total, "output");
  uint64_t own = context.rank * bytes;
  if (call.output_counts != nullptr)
    own = element * (call.output_offsets ? call.output_offsets[context.rank]
                                         : sum_of_counts(call.output_counts, context.rank));
  shape.in_place = call.input == static_cast<const std::byte*>(call.output) + own;
  shape.choice_bytes = total;
  refuse_overlap(shape, bytes,
                 call.output_counts
                     ? end_of_parts(call.output_counts, call.output_offsets, context.size) * element
                     : total);
  return shape;
}

}  // namespace starling
