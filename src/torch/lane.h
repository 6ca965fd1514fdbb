// The lane that operations issued by the calling thread go to: `with starling.torch.lane(...)`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace starling::torch_adapter {

struct Lane {
  std::optional<std::string> name;  // none: the group's default lane
  std::int32_t priority = 0;
  std::optional<std::string> algorithm;  // none: chosen by the library
};

// Scopes nest; each thread has its own.
void enter_lane(Lane lane);
void leave_lane();
const Lane& current_lane();

}  // namespace starling::torch_adapter
