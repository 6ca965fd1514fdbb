// Which RDMA port a network interface is, and by which of its addresses (RoCE v2), as the system
// says it under /sys/class/infiniband.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "link/tcp/ports.h"

namespace starling::link::verbs {

struct Gid {
  std::string device;
  uint8_t port = 0;
  uint8_t index = 0;  // in the port's table
  uint8_t bytes[16] = {};
};

// None: the interface belongs to no RDMA device, or has no such address now. Reads every entry of the tables,
// of which a device may have a thousand.
std::optional<Gid> find_gid(const tcp::Port& port, const std::string& sysfs = "/sys/class/infiniband");

// What find_gid() has found is there yet.
bool is_still(const Gid& gid, const tcp::Port& port, const std::string& sysfs = "/sys/class/infiniband");

}  // namespace starling::link::verbs
