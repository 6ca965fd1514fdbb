// Collectives of the user's own: a plan that was added to the group, run by its name.
#include <starling/plan.h>

#include "call.h"
#include "errors.h"
#include "lane.h"

namespace starling::torch_adapter {
namespace {

constexpr const char* kPlanTitle = "starling:run_plan";

// The calling thread's lane, with this plan.
class PlanScope {
 public:
  explicit PlanScope(const std::string& plan) {
    Lane lane = current_lane();
    lane.algorithm = plan;
    enter_lane(std::move(lane));
  }
  ~PlanScope() { leave_lane(); }
  PlanScope(const PlanScope&) = delete;
  PlanScope& operator=(const PlanScope&) = delete;
};

// Whether the library has a plan of the name itself, whatever nodes and tiles stand behind it.
bool is_built_in(const std::string& name) {
  char* known = nullptr;
  check(starling_plan_algorithms("custom", &known), "asking for the library's plans");
  const std::string names = " " + std::string(known) + " ";
  starling_plan_free(known);
  return names.find(" " + name.substr(0, name.find_first_of(":@")) + " ") != std::string::npos;
}

// Elements of one group, in torch's.
std::int64_t group_elements(const at::Tensor& tensor, std::uint32_t groups, const char* what) {
  TORCH_CHECK(groups > 0 && tensor.numel() % groups == 0, kPlanTitle, ": the ", what, " of ", tensor.numel(),
              " elements does not fall into the plan's ", groups, " equal groups");
  return tensor.numel() / groups;
}

}  // namespace

std::shared_ptr<Communicator> Backend::communicator_on(c10::Device device) {
  return device.is_cuda() ? cuda_side(device).communicator : communicator();
}

std::uint32_t Backend::daemon_blocks(c10::Device device) {
  return starling_context_blocks(communicator_on(device)->context());
}

void Backend::add_plan(const std::string& text, std::uint64_t smallest_bytes, std::uint64_t largest_bytes,
                       const std::string& name, std::uint32_t input_groups, std::uint32_t output_groups,
                       c10::Device device) {
  check(starling_comm_add_plan(communicator_on(device)->get(), text.c_str(), smallest_bytes, largest_bytes),
        "adding a plan");
  const std::lock_guard lock(mutex_);
  plans_[{device.type(), name}] = {input_groups, output_groups};
}

Backend::PlanGroups Backend::groups_of_plan(const std::string& name, c10::Device device) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = plans_.find({device.type(), name});
    if (found != plans_.end()) return found->second;
  }
  TORCH_CHECK(is_built_in(name), kPlanTitle, ": no plan named '", name,
              "' was added to this group for tensors of ", device,
              "; call starling.torch.add_plan with their device first, on every rank");
  return {1, 1};
}

c10::intrusive_ptr<c10d::Work> Backend::run_plan(const std::string& name, at::Tensor& input,
                                                 at::Tensor& output, const c10d::ReduceOp& op, bool async) {
  check_tensor(input, kPlanTitle);
  check_tensor(output, kPlanTitle);
  check_alike(input, output, kPlanTitle);
  const PlanGroups groups = groups_of_plan(name, input.device());
  const std::int64_t elements = group_elements(input, groups.input, "input");
  TORCH_CHECK(group_elements(output, groups.output, "output") == elements, kPlanTitle,
              ": the groups of plan '", name, "' are all equally long, but ", input.numel(), " elements in ",
              groups.input, " groups go in, and ", output.numel(), " in ", groups.output, " come out");
  const Reduction reduction = reduction_of(input, op, kPlanTitle);
  Call call(*this, {c10d::OpType::UNKNOWN, kPlanTitle, {input}, {output}, c10d::kUnsetTimeout, async});
  starling_operation operation = call.operation(STARLING_CUSTOM, reduction);
  const bool in_place = input.is_same(output);
  operation.output = in_place ? call.update(output) : call.write(output);
  operation.input = in_place ? operation.output : call.read(input);
  operation.count = static_cast<size_t>(elements) * reduction.element.per_element;
  const PlanScope scope(name);
  call.submit(operation);
  return call.launch();
}

}  // namespace starling::torch_adapter
