#include <algorithm>

#include "base/error.h"
#include "comm/lowering.h"

namespace starling {

// A collective of the user's own: what it does is its plan's, which the call names. `count` is of one group.
Shape custom_shape(const LoweringContext& context, const starling_operation& call) {
  if (call.algorithm == nullptr || context.added == nullptr)
    throw Error(Code::invalid_argument, "a custom collective without a plan",
                "add its plan with starling_comm_add_plan, and name it in `algorithm`");
  Shape shape{.collective = Collective::kCustom, .reduces = true};
  shape.in_place = call.input == call.output;
  const PlanUse use{Collective::kCustom, context.size, 0, shape.in_place, false, call.count == 0};
  const std::shared_ptr<const Plan> plan = context.added->named(call.algorithm, use);
  if (plan == nullptr)
    throw Error(Code::invalid_argument, "no plan named '" + std::string(call.algorithm) + "' was added",
                "call starling_comm_add_plan first, on every rank");
  const PlanHeader* header = plan->header(context.rank);
  const uint64_t bytes = message_bytes(call);
  require_buffer(call.input, bytes * header->input_groups, "input");
  require_buffer(call.output, bytes * header->output_groups, "output");
  shape.input = {call.input, bytes};
  shape.output = {call.output, bytes};
  shape.choice_bytes = bytes * std::max(header->input_groups, header->output_groups);
  return shape;
}

}  // namespace starling
