// Why a flow ended, for the error that its lanes' operations get: each path by the name of its port, and what
// it died of.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "link/flow.h"

namespace starling::link {

const char* cause_text(FailureCause cause);

struct FlowNames {
  uint32_t peer;  // rank at the other end
  std::vector<std::string>
      ports;  // by path: what an administrator calls it ("eth0 10.0.0.2 -> eth0 10.0.0.3")
  // By path, or none: why our system would not open it, or what its device said when it failed; "": nothing.
  std::vector<std::string> refusals = {};
};

std::string failure_text(FlowError error, const PathEnd (&paths)[kMaxPaths], const FlowNames& names);

}  // namespace starling::link
