// Failover as the simulated network calls it: the classes of sender.h and receiver.h behind two functions.
// Tests put copies with planted bugs in their place (docs/MUTATIONS.md).
#pragma once
#include "link/flow.h"
#include "link/link.h"

namespace starling::link {

struct FlowCore {
  const char* name;
  void (*sender)(SenderState& state, Link& link, const Event& event);
  void (*receiver)(ReceiverState& state, Link& link, const Event& event);
};

const FlowCore& shipped_flow_core();

}  // namespace starling::link
