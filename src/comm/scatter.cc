#include "comm/lowering.h"

namespace starling {

// Rank r gets the root's part r.
Shape scatter_shape(const LoweringContext& context, const starling_operation& call) {
  const uint64_t bytes = message_bytes(call);
  Shape shape{.collective = Collective::kScatter, .root = checked_root(context, call)};
  const uint64_t total = call.input_counts
                             ? sum_of_counts(call.input_counts, context.size) * element_bytes(call)
                             : bytes * context.size;
  if (context.rank == shape.root) require_buffer(call.input, total, "input");
  require_buffer(call.output, bytes, "output");
  shape.input = {call.input, bytes, call.input_counts, call.input_offsets};
  shape.output = {call.output, bytes};
  shape.choice_bytes = total;
  return shape;
}

}  // namespace starling
