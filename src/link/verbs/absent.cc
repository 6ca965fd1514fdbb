// Built where there is no infiniband/verbs.h, in place of the rest of this folder.
#include "link/verbs/rails.h"

namespace starling::link::verbs {

std::unique_ptr<Rails> open_rails(tcp::Reactor&, const RailOptions&, InterfaceChanged, std::string& why) {
  why = "this build of Starling has no verbs (infiniband/verbs.h was not found)";
  return nullptr;
}

RegistrationPtr enroll(const std::vector<Device*>&, const Region&) { return nullptr; }

}  // namespace starling::link::verbs
