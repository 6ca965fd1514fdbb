// Which groups of this rank have communicators: a second one of the same key is refused.
#include "base/error.h"
#include "comm/context.h"

namespace starling {

void Context::prepare_group(const LaneKey& key, const std::string& name) {
  {
    std::lock_guard lock(mutex_);
    refuse_living_group(key, name);
  }
  remove_lane(key_of(key, kControlLane));  // of an aborted one
}

void Context::enter_group(const LaneKey& key, const std::string& name) {
  std::lock_guard lock(mutex_);
  refuse_living_group(key, name);
  groups_.insert(key);
}

void Context::leave_group(const LaneKey& key) {
  std::lock_guard lock(mutex_);
  groups_.erase(key);
}

void Context::refuse_living_group(const LaneKey& key, const std::string& name) const {
  if (groups_.count(key) != 0)
    throw Error(Code::invalid_argument,
                "this context has a communicator '" + name + "' of the same ranks already",
                "destroy that one first, or give the new one another name");
}

}  // namespace starling
