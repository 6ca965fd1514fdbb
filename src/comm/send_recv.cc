#include "comm/lowering.h"

namespace starling {

// In a pair lane rank 0 sends and rank 1 receives; a rank that sends to itself is a lane of one that copies.
Shape send_recv_shape(const LoweringContext& context, const starling_operation& call) {
  const uint64_t bytes = message_bytes(call);
  Shape shape{.collective = Collective::kSendRecv};
  if (call.kind == STARLING_SEND || context.size == 1) require_buffer(call.input, bytes, "input");
  if (call.kind == STARLING_RECV || context.size == 1) require_buffer(call.output, bytes, "output");
  shape.input = {call.input, bytes};
  shape.output = {call.output, bytes};
  shape.choice_bytes = bytes;
  return shape;
}

}  // namespace starling
