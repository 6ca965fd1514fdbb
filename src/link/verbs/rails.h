// The RDMA ports that paths may use, for who has paths: no verbs in sight.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "link/registration.h"
#include "link/tcp/reactor.h"
#include "link/tcp/upgrade.h"
#include "link/verbs/settings.h"

namespace starling::link::verbs {

struct RailOptions {
  QueuePairSettings queue_pairs;
  uint64_t most_payload_bytes = 0;  // of a transfer
};

// A port's state, by the index of its interface.
using InterfaceChanged = std::function<void(uint32_t interface_index, bool up)>;

class Device;

class Rails : public Upgrades {
 public:
  // The devices of these ports.
  virtual void open(const std::vector<tcp::Port>& ports) = 0;
  // Those that are open; they live as long as the rails.
  virtual std::vector<Device*> devices() const = 0;
};

// With all of these devices. Null: there are none, or one refuses, which the log says the first time. It
// costs a call of the system for each, which finds and keeps every page (docs/design/0015-verbs.md). Any
// thread's; the registration ends before the devices do.
RegistrationPtr enroll(const std::vector<Device*>& devices, const Region& region);

// Null: there is no libibverbs, or no device, which `why` says; paths stay sockets. The reactor and the rails
// are one thread's.
std::unique_ptr<Rails> open_rails(tcp::Reactor& reactor, const RailOptions& options,
                                  InterfaceChanged interface_changed, std::string& why);

}  // namespace starling::link::verbs
