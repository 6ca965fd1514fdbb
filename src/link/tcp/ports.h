// The network ports that a rank's paths use ("rails"): which there are here, and which of ours goes with
// which of the peer's.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace starling::link::tcp {

struct Port {
  std::string name;  // of the interface
  uint32_t index = 0;  // of the interface, on its own host
  uint32_t address = 0;  // IPv4, in host order
  uint32_t prefix_bits = 0;
  uint16_t number = 0;  // that its owner listens at
};

// Interfaces that are up and have an IPv4 address, in the order of their indices; loopback only where there
// is no other. `wanted`: names separated by commas, in order of preference; a name may come twice. Empty:
// all, at most kMaxPaths. Throws Error(invalid_argument) naming one that is not there, is down or has no
// address.
std::vector<Port> usable_ports(const std::string& wanted);

// Our port and theirs, for each path in order of preference. Ports of one network go together; where no two
// are of one network, first with first, second with second.
std::vector<std::pair<Port, Port>> pair_ports(const std::vector<Port>& ours, const std::vector<Port>& theirs);

std::string address_text(uint32_t address);
// Of a path, for messages.
std::string path_text(const std::pair<Port, Port>& ends);

// "eth0=10.0.0.1/24:4711,eth1=..." and back. Empty: the text is not one of these.
std::string ports_text(const std::vector<Port>& ports);
std::vector<Port> parse_ports(const std::string& text);

}  // namespace starling::link::tcp
