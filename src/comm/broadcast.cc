#include "comm/lowering.h"

namespace starling {

// Every rank gets the root's input.
Shape broadcast_shape(const LoweringContext& context, const starling_operation& call) {
  const uint64_t bytes = message_bytes(call);
  Shape shape{.collective = Collective::kBroadcast, .root = checked_root(context, call)};
  const bool is_root = context.rank == shape.root;
  if (is_root) require_buffer(call.input, bytes, "input");
  // The root of an in-place broadcast may pass its buffer once.
  const void* output = call.output == nullptr && is_root ? call.input : call.output;
  require_buffer(output, bytes, "output");
  shape.input = {is_root ? call.input : output, bytes};
  shape.output = {output, bytes};
  shape.in_place = false;  // the root's copy to itself moves nothing when the buffers are one
  shape.choice_bytes = bytes;
  return shape;
}

}  // namespace starling
