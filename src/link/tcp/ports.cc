#include "link/tcp/ports.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <memory>
#include <sstream>

#include "base/error.h"
#include "wire/link.h"

namespace starling::link::tcp {
namespace {

constexpr const char* kRemedy =
    "set STARLING_TCP_INTERFACES to interfaces that are up and have an IPv4 address ('ip -4 addr' lists "
    "them)";

std::vector<Port> all_ports() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) throw system_error("cannot list the network interfaces", kRemedy);
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(first, freeifaddrs);
  std::vector<Port> ports;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    if (!(entry->ifa_flags & IFF_UP)) continue;
    const auto* address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
    const auto* mask = reinterpret_cast<const sockaddr_in*>(entry->ifa_netmask);
    const uint32_t bits = mask == nullptr ? 32 : uint32_t(std::popcount(mask->sin_addr.s_addr));
    ports.push_back(
        {entry->ifa_name, if_nametoindex(entry->ifa_name), ntohl(address->sin_addr.s_addr), bits});
  }
  // One address an interface: the first.
  std::stable_sort(ports.begin(), ports.end(),
                   [](const Port& a, const Port& b) { return a.index < b.index; });
  ports.erase(std::unique(ports.begin(), ports.end(),
                          [](const Port& a, const Port& b) { return a.index == b.index; }),
              ports.end());
  return ports;
}

bool is_loopback(const Port& port) { return port.address >> 24 == 127; }

bool same_network(const Port& a, const Port& b) {
  const uint32_t bits = std::min(a.prefix_bits, b.prefix_bits);
  return bits > 0 && a.address >> (32 - bits) == b.address >> (32 - bits);
}

}  // namespace

std::vector<Port> usable_ports(const std::string& wanted) {
  std::vector<Port> all = all_ports();
  std::vector<Port> chosen;
  if (wanted.empty()) {
    std::copy_if(all.begin(), all.end(), std::back_inserter(chosen),
                 [](const Port& port) { return !is_loopback(port); });
    if (chosen.empty()) chosen = all;
    if (chosen.empty())
      throw Error(Code::system, "no network interface is up and has an IPv4 address", kRemedy);
  }
  std::istringstream names(wanted);
  for (std::string name; std::getline(names, name, ',');) {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const Port& port) { return port.name == name; });
    if (found == all.end())
      throw Error(Code::invalid_argument,
                  "there is no interface '" + name + "' that is up and has an address", kRemedy);
    chosen.push_back(*found);
  }
  if (chosen.size() > kMaxPaths) chosen.resize(kMaxPaths);
  return chosen;
}

std::vector<std::pair<Port, Port>> pair_ports(const std::vector<Port>& ours,
                                              const std::vector<Port>& theirs) {
  std::vector<std::pair<Port, Port>> pairs;
  std::vector<bool> taken(theirs.size());
  for (const Port& port : ours)
    for (size_t k = 0; k < theirs.size(); ++k) {
      if (taken[k] || !same_network(port, theirs[k])) continue;
      taken[k] = true;
      pairs.emplace_back(port, theirs[k]);
      break;
    }
  if (!pairs.empty()) return pairs;
  for (size_t k = 0; k < std::min(ours.size(), theirs.size()); ++k) pairs.emplace_back(ours[k], theirs[k]);
  return pairs;
}

std::string address_text(uint32_t address) {
  char text[16];
  std::snprintf(text, sizeof text, "%u.%u.%u.%u", address >> 24, address >> 16 & 255, address >> 8 & 255,
                address & 255);
  return text;
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
    char name[64];
    unsigned a, b, c, d, bits, number;
    if (std::sscanf(word.c_str(), "%63[^=]=%u.%u.%u.%u/%u:%u", name, &a, &b, &c, &d, &bits, &number) != 7 ||
        (a | b | c | d) > 255 || bits > 32 || number > 65535)
      return {};
    ports.push_back({name, 0, a << 24 | b << 16 | c << 8 | d, bits, uint16_t(number)});
  }
  return ports;
}

}  // namespace starling::link::tcp
