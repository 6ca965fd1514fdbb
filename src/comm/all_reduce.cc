#include "comm/lowering.h"

namespace starling {

// Every rank gets the reduction of all inputs.
Shape all_reduce_shape(const LoweringContext&, const starling_operation& call) {
  const uint64_t bytes = message_bytes(call);
  require_buffer(call.input, bytes, "input");
  require_buffer(call.output, bytes, "output");
  Shape shape{.collective = Collective::kAllReduce, .reduces = true};
  shape.input = {call.input, bytes};
  shape.output = {call.output, bytes};
  shape.in_place = call.input == call.output;
  shape.choice_bytes = bytes;
  refuse_overlap(shape, bytes, bytes);
  return shape;
}

}  // namespace starling
