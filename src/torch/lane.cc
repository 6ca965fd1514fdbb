#include "lane.h"

#include <utility>
#include <vector>

#include <c10/util/Exception.h>

namespace starling::torch_adapter {
namespace {

// Per thread, as the scope is lexical: a hook names the lane of what it issues itself, on whatever thread it
// runs.
std::vector<Lane>& scopes() {
  thread_local std::vector<Lane> entered;
  return entered;
}

}  // namespace

void enter_lane(Lane lane) { scopes().push_back(std::move(lane)); }

void leave_lane() {
  TORCH_CHECK(!scopes().empty(), "starling.torch: a lane was left on a thread that had entered none");
  scopes().pop_back();
}

const Lane& current_lane() {
  static const Lane kDefault;
  return scopes().empty() ? kDefault : scopes().back();
}

}  // namespace starling::torch_adapter
