// The RDMA ports that paths may use, for who has paths: no verbs in sight.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

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

class Rails : public Upgrades {
 public:
  // Payloads in it are read without a copy, and peers may write there. On the devices of all these ports.
  // False: one refuses, and nothing is registered.
  virtual bool keep_registered(const std::vector<tcp::Port>& ports, std::byte* begin, uint64_t bytes) = 0;
  virtual void forget_registered(const std::byte* begin) = 0;
  // What a peer that comes by this port needs to write there; none: it cannot.
  virtual std::optional<uint32_t> remote_key(const tcp::Port& ours, const std::byte* at,
                                             uint64_t bytes) const = 0;
};

// Null: there is no libibverbs, or no device, which `why` says; paths stay sockets. The reactor and the rails
// are one thread's.
std::unique_ptr<Rails> open_rails(tcp::Reactor& reactor, const RailOptions& options,
                                  InterfaceChanged interface_changed, std::string& why);

}  // namespace starling::link::verbs
