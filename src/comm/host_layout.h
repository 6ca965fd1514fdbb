// Which ranks share a host, and in what order rings pass the hosts.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/env.h"

namespace starling {

// Of a group, the same on all of its ranks.
struct HostLayout {
  uint32_t node_count = 0;  // the hosts, if there are several with equally many ranks each; else 0
  // Ranks host by host, hosts in ring order, as PlanRequest has it. Empty: so they are numbered.
  std::vector<uint16_t> order;
  // Likewise, for plans in which ranks speak with their neighbours alone: hosts are passed in ways of their
  // own, so that a ring enters a host on the rail on which it left the one before (ICCL §5, Fig. 16). A
  // rank's rail is its place among those of its host. As few hops cross as can be: none if the hosts have
  // equally many ranks, and are even in number or have three ranks.
  std::vector<uint16_t> ring_order;
};

// Where a rank is: `place` is its host's in ring order; ranks of one host have one place.
struct HostOfRank {
  uint64_t host;
  uint32_t place;
};

HostLayout host_layout(std::span<const HostOfRank> ranks);

// The place of each rank's host where nothing says otherwise: in the order of their first ranks.
std::vector<uint32_t> places_by_rank(std::span<const uint64_t> hosts);

// Hosts' names from a topology's file: those of one leaf switch beside each other, else as in the file.
// Throws as link::read_topology() does.
std::vector<std::string> hosts_by_leaf(const std::string& path);

// `named`: what each rank's host is called, `order` the same names in ring order; hosts that are not in it
// come last, in the order of their first ranks. Ranks of one host say one name.
std::vector<uint32_t> places_by_name(std::span<const uint64_t> hosts, std::span<const uint64_t> named,
                                     std::span<const uint64_t> order);

// What a topology's file calls this host.
std::string name_of_host(const Settings& settings);

}  // namespace starling
