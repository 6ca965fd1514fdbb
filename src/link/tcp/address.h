// An IP address of either family, as 16 bytes in network order: IPv6, or IPv4 as ::ffff:a.b.c.d, which is
// also how RoCE v2 names ports.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>

struct sockaddr;
struct sockaddr_storage;

namespace starling::link::tcp {

struct Address {
  std::array<uint8_t, 16> bytes{};

  bool operator==(const Address&) const = default;
  bool is_ipv4() const;
  bool is_loopback() const;
  // fe80::/10: means something only together with an interface, on either host another one.
  bool is_link_local() const;
};

// Of a socket that listens: all of one family.
Address any_address(bool ipv4);
// Of a prefix's length, by family.
uint32_t address_bits(const Address& address);
// Whether the first `prefix_bits` are alike; never of different families, never with none.
bool same_network(const Address& a, const Address& b, uint32_t prefix_bits);

// Without brackets.
std::string address_text(const Address& address);
// A literal address of either family, no name, no zone. None: the text is not one.
std::optional<Address> parse_address(const std::string& text);

// None: of another family.
std::optional<Address> address_of(const sockaddr* from);
// Fills `to`; its length.
uint32_t socket_address(const Address& address, uint16_t number, sockaddr_storage& to);

}  // namespace starling::link::tcp
