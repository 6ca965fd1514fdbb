// Hears from the system which ports go down and come up (netlink).
#pragma once
#include <functional>

#include "link/tcp/reactor.h"

namespace starling::link::tcp {

class PortWatch final : public Watched {
 public:
  // Where the system tells nothing, silence and errors have to do.
  PortWatch(Reactor& reactor, std::function<void(uint32_t interface_index, bool up)> changed);
  ~PortWatch() override;
  void ready(uint32_t events) override;

 private:
  Reactor& reactor_;
  std::function<void(uint32_t, bool)> changed_;
  Descriptor socket_;
  uint64_t watch_ = 0;
};

}  // namespace starling::link::tcp
