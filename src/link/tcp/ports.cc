#include "link/tcp/ports.h"

#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/log.h"
#include "wire/link.h"

namespace starling::link::tcp {
namespace {

constexpr const char* kRemedy =
    "set STARLING_TCP_INTERFACES to interfaces that are up and have an IPv4 address, or an IPv6 one that is "
    "not "
    "link-local ('ip addr' lists them)";

// IPv6 addresses that cannot be bound to (their uniqueness is not known yet, or they are not unique), or are
// about to go.
std::set<std::string> unfit_addresses() {
  constexpr unsigned kDadFailed = 0x08, kDeprecated = 0x20, kTentative = 0x40;
  std::set<std::string> unfit;
  std::ifstream file("/proc/net/if_inet6");
  std::string line;
  while (std::getline(file, line)) {
    Address address;
    unsigned index, prefix, scope, flags;
    char digits[33];
    if (std::sscanf(line.c_str(), "%32s %x %x %x %x", digits, &index, &prefix, &scope, &flags) != 5) continue;
    for (size_t k = 0; k < address.bytes.size(); ++k) {
      unsigned byte = 0;
      std::sscanf(digits + 2 * k, "%2x", &byte);
      address.bytes[k] = uint8_t(byte);
    }
    if (flags & (kDadFailed | kDeprecated | kTentative)) unfit.insert(address_text(address));
  }
  return unfit;
}

uint32_t prefix_bits_of(const sockaddr* mask, const Address& address) {
  const auto bytes = mask == nullptr ? std::nullopt : address_of(mask);
  if (!bytes) return address_bits(address);
  uint32_t bits = 0;
  for (size_t k = address.is_ipv4() ? 12 : 0; k < bytes->bytes.size(); ++k)
    bits += uint32_t(std::popcount(bytes->bytes[k]));
  return bits;
}

// An entry for each address, link-local ones too.
std::vector<Port> all_ports() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) throw system_error("cannot list the network interfaces", kRemedy);
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(first, freeifaddrs);
  const std::set<std::string> unfit = unfit_addresses();
  std::vector<Port> ports;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || !(entry->ifa_flags & IFF_UP)) continue;
    const std::optional<Address> address = address_of(entry->ifa_addr);
    if (!address || unfit.contains(address_text(*address))) continue;
    ports.push_back({entry->ifa_name, if_nametoindex(entry->ifa_name), *address,
                     prefix_bits_of(entry->ifa_netmask, *address)});
  }
  std::stable_sort(ports.begin(), ports.end(),
                   [](const Port& a, const Port& b) { return a.index < b.index; });
  return ports;
}

// The first one of this interface's, of IPv4's first if any family will do. Null: it has none.
const Port* port_of(const std::vector<Port>& all, uint32_t index, Family family) {
  const Port* ipv6 = nullptr;
  for (const Port& port : all) {
    if (port.index != index || port.address.is_link_local()) continue;
    if (port.address.is_ipv4() && family != Family::kIpv6) return &port;
    if (!port.address.is_ipv4() && family != Family::kIpv4 && ipv6 == nullptr) ipv6 = &port;
  }
  return ipv6;
}

const char* text_of(Family family) {
  switch (family) {
    case Family::kAny: return "an address";
    case Family::kIpv4: return "an IPv4 address";
    case Family::kIpv6: return "an IPv6 address";
  }
  return "";
}

const Port& port_named(const std::vector<Port>& all, const std::string& wanted, Family family) {
  const std::optional<Address> address = parse_address(wanted);
  if (address && address->is_link_local())
    throw Error(Code::invalid_argument,
                "'" + wanted + "' is link-local: it names a host on one wire alone, and no interface",
                kRemedy);
  bool link_local = false;
  for (const Port& port : all) {
    if (address ? port.address != *address : port.name != wanted) continue;
    if (address) return port;
    if (const Port* found = port_of(all, port.index, family)) return *found;
    link_local |= port.address.is_link_local();
  }
  throw Error(Code::invalid_argument,
              address ? "no interface that is up has the address " + wanted
                      : "there is no interface '" + wanted + "' that is up and has " + text_of(family) +
                            (link_local ? " that is not link-local" : ""),
              kRemedy);
}

}  // namespace

std::vector<Port> choose_ports(const std::vector<Port>& all, const std::string& wanted, Family family) {
  std::vector<Port> chosen;
  std::istringstream names(wanted);
  for (std::string name; std::getline(names, name, ',');) chosen.push_back(port_named(all, name, family));
  if (wanted.empty()) {
    std::vector<Port> loopback;
    uint32_t last = 0;  // the entries of an interface are neighbours
    for (const Port& port : all) {
      if (port.index == last) continue;
      last = port.index;
      if (const Port* found = port_of(all, port.index, family))
        (found->address.is_loopback() ? loopback : chosen).push_back(*found);
      else if (port.address.is_link_local() && family != Family::kIpv4)
        log(LogLevel::info, "interface ", port.name, " is not used for links: its address ",
            address_text(port.address), " is link-local");
    }
    if (chosen.empty()) chosen = loopback;
    if (chosen.empty())
      throw Error(Code::system, std::string("no network interface is up and has ") + text_of(family),
                  kRemedy);
  }
  if (chosen.size() > kMaxPaths) chosen.resize(kMaxPaths);
  return chosen;
}

std::vector<Port> usable_ports(const std::string& wanted, Family family) {
  return choose_ports(all_ports(), wanted, family);
}

bool moved(Port& port) {
  const std::vector<Port> all = all_ports();
  const Family family = port.address.is_ipv4() ? Family::kIpv4 : Family::kIpv6;
  for (const Port& entry : all)
    if (entry.name == port.name && entry.address == port.address) return false;
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Port& entry) { return entry.name == port.name; });
  const Port* now = found == all.end() ? nullptr : port_of(all, found->index, family);
  if (now == nullptr) return false;
  port.index = now->index;
  port.address = now->address;
  port.prefix_bits = now->prefix_bits;
  return true;
}

std::vector<std::pair<Port, Port>> pair_ports(const std::vector<Port>& ours,
                                              const std::vector<Port>& theirs) {
  std::vector<std::pair<Port, Port>> pairs;
  std::vector<bool> taken(theirs.size());
  for (const Port& port : ours)
    for (size_t k = 0; k < theirs.size(); ++k) {
      const uint32_t bits = std::min(port.prefix_bits, theirs[k].prefix_bits);
      if (taken[k] || !same_network(port.address, theirs[k].address, bits)) continue;
      taken[k] = true;
      pairs.emplace_back(port, theirs[k]);
      break;
    }
  if (!pairs.empty()) return pairs;
  for (const Port& port : ours)
    for (size_t k = 0; k < theirs.size(); ++k) {
      if (taken[k] || port.address.is_ipv4() != theirs[k].address.is_ipv4()) continue;
      taken[k] = true;
      pairs.emplace_back(port, theirs[k]);
      break;
    }
  return pairs;
}

std::string path_text(const std::pair<Port, Port>& ends) {
  const auto& [ours, theirs] = ends;
  return ours.name + " " + address_text(ours.address) + " -> " + theirs.name + " " +
         address_text(theirs.address);
}

std::string ports_text(const std::vector<Port>& ports) {
  std::string text;
  for (const Port& port : ports)
    text += (text.empty() ? "" : ",") + port.name + "=" + address_text(port.address) + "/" +
            std::to_string(port.prefix_bits) + ":" + std::to_string(port.number);
  return text;
}

std::vector<Port> parse_ports(const std::string& text) {
  std::vector<Port> ports;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    char name[64], literal[64];
    unsigned bits, number;
    // The address may have colons, but no slash.
    if (std::sscanf(word.c_str(), "%63[^=]=%63[^/]/%u:%u", name, literal, &bits, &number) != 4) return {};
    const std::optional<Address> address = parse_address(literal);
    if (!address || bits > address_bits(*address) || number > 65535) return {};
    ports.push_back({name, 0, *address, bits, uint16_t(number)});
  }
  return ports;
}

}  // namespace starling::link::tcp
