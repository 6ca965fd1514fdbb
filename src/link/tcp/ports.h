// The network ports that a rank's paths use ("rails"): which there are here, and which of ours goes with
// which of the peer's.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "link/tcp/address.h"

namespace starling::link::tcp {

struct Port {
  std::string name;  // of the interface
  uint32_t index = 0;  // of the interface, on its own host
  Address address;
  uint32_t prefix_bits = 0;
  uint16_t number = 0;  // that its owner listens at
  std::string congestion = {};  // control of connections from it, as the system names it, or kUsualCongestion
};

// Another control for a port's connections than the one that is chosen for them (socket.h).
inline constexpr const char* kUsualCongestion = "system";

// Which address stands for an interface that has several.
enum class Family : uint8_t { kAny /* IPv4 if there is one */, kIpv4, kIpv6 };

// Interfaces that are up and have an address, in the order of their indices; loopback only where there is no
// other. Link-local addresses do not count: they name no host. `wanted`: names of interfaces, or literal
// addresses of theirs, separated by commas, in order of preference; one may come twice. Empty: all, at most
// kMaxPaths. Throws Error(invalid_argument) naming one that is not there, is down or has no such address.
std::vector<Port> usable_ports(const std::string& wanted, Family family = Family::kAny);
// Likewise, of what the system has; an address an entry.
std::vector<Port> choose_ports(const std::vector<Port>& all, const std::string& wanted, Family family);

// Whether the interface has another address than this by now, of the same family: then `port` has it.
bool moved(Port& port);

// Our port and theirs, for each path in order of preference. Ports of one network go together; where no two
// are of one network, those of one family, first with first, second with second. Empty: no two are of one
// family.
std::vector<std::pair<Port, Port>> pair_ports(const std::vector<Port>& ours, const std::vector<Port>& theirs);

// Of a path, for messages.
std::string path_text(const std::pair<Port, Port>& ends);

// "eth0=10.0.0.1/24:4711,eth1=fd00::1/64:4712,..." and back. Empty: the text is not one of these.
std::string ports_text(const std::vector<Port>& ports);
std::vector<Port> parse_ports(const std::string& text);

}  // namespace starling::link::tcp
