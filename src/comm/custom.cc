#include <algorithm>
#include <string>

#include "base/error.h"
#include "comm/lowering.h"
#include "plan/generate.h"
#include "plan/geometry.h"

namespace starling {

namespace {

// Parts of one length that either buffer holds: as the added plan has them, else as a built-in one does.
struct Groups {
  uint32_t input;
  uint32_t output;
};

Groups groups_of(const LoweringContext& context, const char* name, const PlanUse& use) {
  if (const auto plan = context.added != nullptr ? context.added->named(name, use) : nullptr) {
    const PlanHeader* header = plan->header(context.rank);
    return {header->input_groups, header->output_groups};
  }
  if (is_algorithm(name, Collective::kCustom)) {
    const Geometry geometry = Geometry::standard(Collective::kCustom, context.size, 0, use.in_place, 1);
    return {geometry.input_groups, geometry.output_groups};
  }
  std::string built_in;
  for (const std::string_view known : algorithms_for(Collective::kCustom))
    built_in += (built_in.empty() ? "" : ", ") + std::string(known);
  throw Error(Code::invalid_argument, "no plan named '" + std::string(name) + "' was added",
              "call starling_comm_add_plan first, on every rank, or name one of the library's: " + built_in);
}

}  // namespace

// A collective of the user's own, or of the library's that has no kind: what it does is its plan's, which the
// call names. `count` is of one group.
Shape custom_shape(const LoweringContext& context, const starling_operation& call) {
  if (call.algorithm == nullptr)
    throw Error(Code::invalid_argument, "a custom collective without a plan",
                "add its plan with starling_comm_add_plan, and name it in `algorithm`");
  Shape shape{.collective = Collective::kCustom, .reduces = true};
  shape.in_place = call.input == call.output;
  const PlanUse use{Collective::kCustom, context.size, 0, shape.in_place, false, call.count == 0};
  const Groups groups = groups_of(context, call.algorithm, use);
  const uint64_t bytes = message_bytes(call);
  require_buffer(call.input, bytes * groups.input, "input");
  require_buffer(call.output, bytes * groups.output, "output");
  shape.input = {call.input, bytes};
  shape.output = {call.output, bytes};
  refuse_overlap(shape, bytes * groups.input, bytes * groups.output);
  shape.choice_bytes = bytes * std::max(groups.input, groups.output);
  return shape;
}

}  // namespace starling
