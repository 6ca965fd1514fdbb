#include "comm/lowering.h"

namespace starling {

// The root gets the reduction of all inputs.
Shape reduce_shape(const LoweringContext& context, const starling_operation& call) {
  const uint64_t bytes = message_bytes(call);
  Shape shape{.collective = Collective::kReduce, .reduces = true, .root = checked_root(context, call)};
  require_buffer(call.input, bytes, "input");
  if (context.rank == shape.root) require_buffer(call.output, bytes, "output");
  shape.input = {call.input, bytes};
  shape.output = {call.output, bytes};
  shape.in_place = false;  // plans read an element of the input before they write it to the output
  shape.choice_bytes = bytes;
  return shape;
}

}  // namespace starling
