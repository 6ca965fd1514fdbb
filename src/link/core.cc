#include "link/core.h"

#include "link/receiver.h"
#include "link/sender.h"

namespace starling::link {

const FlowCore& shipped_flow_core() {
  static const FlowCore kCore = {
      "shipped",
      [](SenderState& state, Link& link, const Event& event) { Sender(state, link).handle(event); },
      [](ReceiverState& state, Link& link, const Event& event) { Receiver(state, link).handle(event); },
  };
  return kCore;
}

}  // namespace starling::link
