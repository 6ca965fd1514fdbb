#include "base/error.h"
#include "comm/lowering.h"

namespace starling {
namespace {

// In place, what is received lies where what is sent lay.
bool same_layout(const Side& a, const Side& b, uint32_t size) {
  uint64_t next = 0;
  for (uint32_t r = 0; r < size; ++r) {
    if (a.counts[r] != b.counts[r]) return false;
    if ((a.offsets ? a.offsets[r] : next) != (b.offsets ? b.offsets[r] : next)) return false;
    next += a.counts[r];
  }
  return true;
}

}  // namespace

// Rank r's part s goes to rank s's part r. With counts, every pair has a length of its own.
Shape all_to_all_shape(const LoweringContext& context, const starling_operation& call) {
  const uint64_t bytes = message_bytes(call);
  const uint64_t element = element_bytes(call);
  if ((call.input_counts == nullptr) != (call.output_counts == nullptr))
    throw Error(Code::invalid_argument, "all_to_all with counts for one side only",
                "pass both input_counts and output_counts, or neither");
  Shape shape{.collective = Collective::kAllToAll};
  shape.varying = call.input_counts != nullptr;
  const uint64_t total = bytes * context.size;
  require_buffer(call.input, shape.varying ? sum_of_counts(call.input_counts, context.size) * element : total,
                 "input");
  require_buffer(call.output,
                 shape.varying ? sum_of_counts(call.output_counts, context.size) * element : total, "output");
  shape.input = {call.input, shape.varying ? 0 : bytes, call.input_counts, call.input_offsets};
  shape.output = {call.output, shape.varying ? 0 : bytes, call.output_counts, call.output_offsets};
  shape.in_place = call.input == call.output;
  if (shape.in_place && shape.varying && !same_layout(shape.input, shape.output, context.size))
    throw Error(Code::unsupported,
                "all_to_all in place whose parts to send and to receive have other counts or offsets",
                "pass an output buffer of its own, or equal tables for both sides");
  if (shape.varying)
    refuse_overlap(shape, end_of_parts(call.input_counts, call.input_offsets, context.size) * element,
                   end_of_parts(call.output_counts, call.output_offsets, context.size) * element);
  else
    refuse_overlap(shape, total, total);
  // The choice must be the same on all ranks: it cannot depend on counts that differ.
  shape.choice_bytes = shape.varying ? uint64_t(1) << 18 : total;
  return shape;
}

}  // namespace starling
