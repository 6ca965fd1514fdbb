#include "link/tcp/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

namespace starling::link::tcp {
namespace {

constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr uint32_t kMappedBits = 96;

}  // namespace

bool Address::is_ipv4() const { return std::equal(std::begin(kMapped), std::end(kMapped), bytes.begin()); }

bool Address::is_loopback() const {
  if (is_ipv4()) return bytes[12] == 127;
  Address loopback;
  loopback.bytes[15] = 1;
  return *this == loopback;
}

bool Address::is_link_local() const { return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80; }

Address any_address(bool ipv4) {
  Address address;
  if (ipv4) std::copy(std::begin(kMapped), std::end(kMapped), address.bytes.begin());
  return address;
}

uint32_t address_bits(const Address& address) { return address.is_ipv4() ? 32 : 128; }

bool same_network(const Address& a, const Address& b, uint32_t prefix_bits) {
  if (prefix_bits == 0 || a.is_ipv4() != b.is_ipv4()) return false;
  const uint32_t bits = std::min<uint32_t>(prefix_bits + (a.is_ipv4() ? kMappedBits : 0), 128);
  if (!std::equal(a.bytes.begin(), a.bytes.begin() + bits / 8, b.bytes.begin())) return false;
  return bits % 8 == 0 || (a.bytes[bits / 8] ^ b.bytes[bits / 8]) >> (8 - bits % 8) == 0;
}

std::string address_text(const Address& address) {
  char text[INET6_ADDRSTRLEN];
  const bool ipv4 = address.is_ipv4();
  inet_ntop(ipv4 ? AF_INET : AF_INET6, address.bytes.data() + (ipv4 ? sizeof kMapped : 0), text, sizeof text);
  return text;
}

std::optional<Address> parse_address(const std::string& text) {
  Address address;
  if (inet_pton(AF_INET6, text.c_str(), address.bytes.data()) == 1) return address;
  std::copy(std::begin(kMapped), std::end(kMapped), address.bytes.begin());
  if (inet_pton(AF_INET, text.c_str(), address.bytes.data() + sizeof kMapped) == 1) return address;
  return {};
}

std::optional<Address> address_of(const sockaddr* from) {
  Address address;
  if (from->sa_family == AF_INET6) {
    std::memcpy(address.bytes.data(), &reinterpret_cast<const sockaddr_in6*>(from)->sin6_addr, 16);
    return address;
  }
  if (from->sa_family != AF_INET) return {};
  std::copy(std::begin(kMapped), std::end(kMapped), address.bytes.begin());
  std::memcpy(address.bytes.data() + sizeof kMapped, &reinterpret_cast<const sockaddr_in*>(from)->sin_addr,
              4);
  return address;
}

uint32_t socket_address(const Address& address, uint16_t number, sockaddr_storage& to) {
  to = {};
  if (address.is_ipv4()) {
    auto& ipv4 = reinterpret_cast<sockaddr_in&>(to);
    ipv4.sin_family = AF_INET;
    ipv4.sin_port = htons(number);
    std::memcpy(&ipv4.sin_addr, address.bytes.data() + sizeof kMapped, 4);
    return sizeof ipv4;
  }
  auto& ipv6 = reinterpret_cast<sockaddr_in6&>(to);
  ipv6.sin6_family = AF_INET6;
  ipv6.sin6_port = htons(number);
  std::memcpy(&ipv6.sin6_addr, address.bytes.data(), 16);
  return sizeof ipv6;
}

}  // namespace starling::link::tcp
