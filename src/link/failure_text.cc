#include "link/failure_text.h"

#include "base/assert.h"

namespace starling::link {

const char* cause_text(FailureCause cause) {
  switch (cause) {
    case FailureCause::kNone: return "has not failed";
    case FailureCause::kCompletion: return "a transfer failed on it";
    case FailureCause::kPort: return "its port is down";
    case FailureCause::kPeer: return "it failed at the peer";
    case FailureCause::kSilent: return "silent: a probe was not answered";
    case FailureCause::kBroken: return "its connection was closed";
    case FailureCause::kLost: return "it lost data";
    case FailureCause::kOpen: return "it cannot be connected again";
  }
  return "unknown";
}

std::string failure_text(FlowError error, const PathEnd (&paths)[kMaxPaths], const FlowNames& names) {
  STARLING_ASSERT(names.ports.size() <= kMaxPaths, "a flow has no more paths than this");
  const std::string peer = "rank " + std::to_string(names.peer);
  std::string text;
  switch (error) {
    case FlowError::kNone: return {};
    case FlowError::kNoPath: text = "no path to " + peer + " lives"; break;
    case FlowError::kFatal:
      text = "a transfer with " + peer + " failed in a way that no other path could help";
      break;
    case FlowError::kPeer: text = peer + " gave up (its log says why)"; break;
  }
  for (size_t p = 0; p < names.ports.size(); ++p) {
    text += (p == 0 ? ": " : "; ") + names.ports[p];
    // It is the peer's log that says what its paths died of.
    if (error != FlowError::kPeer || paths[p].cause != FailureCause::kNone)
      text += std::string(": ") + cause_text(paths[p].cause);
    if (p < names.refusals.size() && !names.refusals[p].empty()) text += " (" + names.refusals[p] + ")";
  }
  return text;
}

}  // namespace starling::link
