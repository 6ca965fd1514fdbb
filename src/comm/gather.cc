#include "comm/lowering.h"

namespace starling {

// The root gets the parts of all ranks, in rank order.
Shape gather_shape(const LoweringContext& context, const starling_operation& call) {
  const uint64_t bytes = message_bytes(call);
  Shape shape{.collective = Collective::kGather, .root = checked_root(context, call)};
  const uint64_t total = call.output_counts
                             ? sum_of_counts(call.output_counts, context.size) * element_bytes(call)
                             : bytes * context.size;
  require_buffer(call.input, bytes, "input");
  if (context.rank == shape.root) require_buffer(call.output, total, "output");
  shape.input = {call.input, bytes};
  shape.output = {call.output, bytes, call.output_counts, call.output_offsets};
  shape.choice_bytes = total;
  return shape;
}

}  // namespace starling
