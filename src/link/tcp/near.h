// What of this host is near a device, as sysfs says, or a topology's file in its place: network ports, and
// processor cores.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "link/tcp/ports.h"
#include "link/tcp/topology_file.h"

namespace starling::link {

// device: its PCI address, "0000:1b:00.0".

// Ports whose cards share more of the device's PCI bridges come first, then those of its NUMA node; those of
// one distance stay in their order. Where `told` says where the device lies, or a port, it counts and not
// sysfs.
void nearest_first(std::vector<tcp::Port>& ports, const std::string& device, const ToldHost& told = {},
                   const std::string& sysfs = "/sys");

// The same for who has no device and runs on these processor cores: ports of their NUMA nodes come first.
// Where there are cores of all nodes, or the system does not say, all stay in their order.
void nearest_first(std::vector<tcp::Port>& ports, const std::vector<uint32_t>& cores,
                   const std::string& sysfs = "/sys");

// Empty: the system does not say.
std::vector<uint32_t> cores_near(const std::string& device, const std::string& sysfs = "/sys");

// "0-3,8": cores as sysfs and taskset write them. Throws Error(invalid_argument).
std::vector<uint32_t> parse_cores(const std::string& text);

}  // namespace starling::link
