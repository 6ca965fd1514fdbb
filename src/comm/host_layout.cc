#include "comm/host_layout.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/read_file.h"

namespace starling {
namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw Error(Code::invalid_argument, path + " is no topology: " + what,
              "write it with `starling topo --json`, or unset STARLING_TOPOLOGY");
}

struct NamedHost {
  std::string name;
  std::set<std::string> leaves;  // that its ports lead to, of those that are up
};

NamedHost host_in(const Json& json, const std::string& path) {
  const Json* const name = json.member("name");
  if (name == nullptr || name->string() == nullptr) refuse(path, "a host has no name");
  NamedHost host{*name->string(), {}};
  const Json* const devices = json.member("devices");
  if (devices == nullptr || devices->array() == nullptr) return host;
  for (const Json& device : *devices->array()) {
    const Json* const leaf = device.member("leaf");
    const Json* const up = device.member("up");
    const bool down = up != nullptr && up->boolean() != nullptr && !*up->boolean();
    if (leaf != nullptr && leaf->string() != nullptr && !leaf->string()->empty() && !down)
      host.leaves.insert(*leaf->string());
  }
  return host;
}

}  // namespace

HostLayout host_layout(std::span<const HostOfRank> ranks) {
  std::map<uint64_t, uint32_t> on_host;
  std::map<uint64_t, uint32_t> first_of;  // rank; where two hosts have one place, one comes before the other
  for (uint32_t rank = 0; rank < ranks.size(); ++rank) {
    ++on_host[ranks[rank].host];
    first_of.try_emplace(ranks[rank].host, rank);
  }
  HostLayout layout;
  if (on_host.size() < 2) return layout;
  const auto unlike = [&](const auto& one) { return one.second != on_host.begin()->second; };
  if (std::none_of(on_host.begin(), on_host.end(), unlike)) layout.node_count = uint32_t(on_host.size());
  std::vector<uint16_t> order(ranks.size());
  std::iota(order.begin(), order.end(), uint16_t(0));
  const auto key = [&](uint16_t r) { return std::pair(ranks[r].place, first_of[ranks[r].host]); };
  std::stable_sort(order.begin(), order.end(), [&](uint16_t a, uint16_t b) { return key(a) < key(b); });
  if (!std::is_sorted(order.begin(), order.end())) layout.order = std::move(order);
  return layout;
}

std::vector<uint32_t> places_by_rank(std::span<const uint64_t> hosts) {
  return places_by_name(hosts, hosts, {});
}

std::vector<uint32_t> places_by_name(std::span<const uint64_t> hosts, std::span<const uint64_t> named,
                                     std::span<const uint64_t> order) {
  std::map<uint64_t, uint32_t> place_of;
  for (uint32_t rank = 0; rank < hosts.size(); ++rank) {
    const auto known = std::find(order.begin(), order.end(), named[rank]);
    if (known != order.end()) place_of.try_emplace(hosts[rank], uint32_t(known - order.begin()));
  }
  // Places have gaps where a file names hosts that have no rank; only their order counts.
  uint32_t next = uint32_t(order.size());
  std::vector<uint32_t> places;
  for (const uint64_t host : hosts) {
    const auto [found, unknown] = place_of.try_emplace(host, next);
    next += unknown;
    places.push_back(found->second);
  }
  return places;
}

std::vector<std::string> hosts_by_leaf(const std::string& path) {
  const Json file = Json::parse(read_file(path, "the topology",
                                          "write one with `starling topo --json`, or unset "
                                          "STARLING_TOPOLOGY"),
                                path);
  const Json* const list = file.member("hosts");
  if (list == nullptr || list->array() == nullptr || list->array()->empty()) refuse(path, "it has no hosts");
  std::vector<NamedHost> hosts;
  for (const Json& one : *list->array()) hosts.push_back(host_in(one, path));
  std::stable_sort(hosts.begin(), hosts.end(),
                   [](const NamedHost& a, const NamedHost& b) { return a.leaves < b.leaves; });
  std::vector<std::string> names;
  for (NamedHost& host : hosts) {
    if (std::find(names.begin(), names.end(), host.name) != names.end())
      refuse(path, "two hosts are called " + host.name);
    names.push_back(std::move(host.name));
  }
  return names;
}

}  // namespace starling
