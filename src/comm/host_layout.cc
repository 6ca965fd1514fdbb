#include "comm/host_layout.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "link/tcp/topology_file.h"

namespace starling {
namespace {

// That its ports lead to, of those that are up.
std::set<std::string> leaves_of(const link::ToldHost& host) {
  std::set<std::string> leaves;
  for (const link::ToldDevice& device : host.devices)
    if (device.up && !device.leaf.empty()) leaves.insert(device.leaf);
  return leaves;
}

using Ranks = std::vector<uint16_t>;

Ranks unless_as_numbered(Ranks order) {
  return std::is_sorted(order.begin(), order.end()) ? Ranks() : std::move(order);
}

// A ring's way through the hosts, one after the other and back to the first, with the fewest hops from one
// rail to another. Where none needs to cross, two rails do for hosts even in number, three for odd ones.
class RingOnRails {
 public:
  explicit RingOnRails(const std::vector<Ranks>& hosts) : hosts_(hosts), steps_(hosts.size()) {
    // The outermost that all hosts of several ranks have: so the ranks between keep their order.
    size_t outermost = SIZE_MAX;
    for (const Ranks& host : hosts)
      if (host.size() > 1) outermost = std::min(outermost, host.size() - 1);
    for (const size_t rail : {size_t(0), outermost, size_t(1), size_t(2)})
      if (rail != SIZE_MAX && std::find(rails_.begin(), rails_.end(), rail) == rails_.end())
        rails_.push_back(rail);
  }

  Ranks order() {
    Ranks best;
    uint32_t fewest = kNever;
    for (size_t first = 0; first < rails_.size(); ++first) {
      find_ways_from(first);
      for (size_t last = 0; last < rails_.size(); ++last) {
        const uint32_t crossings = steps_.back()[last].crossings;
        if (crossings == kNever || crossings + (last != first) >= fewest) continue;
        fewest = crossings + (last != first);
        best = way_to(last);
      }
    }
    return best;
  }

 private:
  static constexpr uint32_t kNever = UINT32_MAX;
  static constexpr size_t kMostRails = 4;  // that are tried

  // The best way so far that leaves a host on one rail; rails by their place in rails_.
  struct Step {
    uint32_t crossings = kNever;
    size_t in = 0;
    size_t before = 0;  // on which the host before was left
  };

  bool may_pass(const Ranks& host, size_t in, size_t out) const {
    return rails_[in] < host.size() && rails_[out] < host.size() && (in != out || host.size() == 1);
  }

  void find_ways_from(size_t first) {
    for (size_t h = 0; h < hosts_.size(); ++h) {
      steps_[h] = {};
      for (size_t in = 0; in < rails_.size(); ++in)
        for (size_t out = 0; out < rails_.size(); ++out) {
          if (!may_pass(hosts_[h], in, out)) continue;
          Step& step = steps_[h][out];
          if (h == 0 && in == first) step = {0, in, 0};
          for (size_t before = 0; h > 0 && before < rails_.size(); ++before) {
            const uint32_t crossings = steps_[h - 1][before].crossings;
            if (crossings != kNever && crossings + (before != in) < step.crossings)
              step = {crossings + (before != in), in, before};
          }
        }
    }
  }

  Ranks way_to(size_t last) const {
    std::vector<std::pair<size_t, size_t>> passed(hosts_.size());
    for (size_t h = hosts_.size(), out = last; h-- > 0; out = steps_[h][out].before)
      passed[h] = {steps_[h][out].in, out};
    Ranks order;
    for (size_t h = 0; h < hosts_.size(); ++h) {
      const size_t in = rails_[passed[h].first], out = rails_[passed[h].second];
      order.push_back(hosts_[h][in]);
      const bool back = in > out;
      for (size_t k = 0; k < hosts_[h].size(); ++k) {
        const size_t between = back ? hosts_[h].size() - 1 - k : k;
        if (between != in && between != out) order.push_back(hosts_[h][between]);
      }
      if (in != out) order.push_back(hosts_[h][out]);
    }
    return order;
  }

  const std::vector<Ranks>& hosts_;
  std::vector<size_t> rails_;
  std::vector<std::array<Step, kMostRails>> steps_;
};

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
  Ranks order(ranks.size());
  std::iota(order.begin(), order.end(), uint16_t(0));
  const auto key = [&](uint16_t r) { return std::pair(ranks[r].place, first_of[ranks[r].host]); };
  std::stable_sort(order.begin(), order.end(), [&](uint16_t a, uint16_t b) { return key(a) < key(b); });
  std::vector<Ranks> hosts;
  for (const uint16_t rank : order) {
    if (hosts.empty() || ranks[hosts.back()[0]].host != ranks[rank].host) hosts.emplace_back();
    hosts.back().push_back(rank);
  }
  layout.ring_order = unless_as_numbered(RingOnRails(hosts).order());
  layout.order = unless_as_numbered(std::move(order));
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
  std::vector<link::ToldHost> hosts = link::read_topology(path);
  std::stable_sort(hosts.begin(), hosts.end(), [](const link::ToldHost& a, const link::ToldHost& b) {
    return leaves_of(a) < leaves_of(b);
  });
  std::vector<std::string> names;
  for (link::ToldHost& host : hosts) names.push_back(std::move(host.name));
  return names;
}

std::string name_of_host(const Settings& settings) {
  if (!settings.host_id.empty()) return settings.host_id;
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "";
}

}  // namespace starling
