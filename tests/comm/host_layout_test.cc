// Goal: every rank lays out the hosts of a group alike, in the order of leaf switches where a file names
// them. Method: groups of few ranks by hand; files as `starling topo --json` writes them, and wrong ones.
// sanitize: address (one thread)
#include "comm/host_layout.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <set>

#include "base/error.h"

namespace starling {
namespace {

using Order = std::vector<uint16_t>;
using Places = std::vector<uint32_t>;

HostLayout laid_out(const std::vector<uint64_t>& hosts, const Places& places) {
  std::vector<HostOfRank> ranks;
  for (size_t r = 0; r < hosts.size(); ++r) ranks.push_back({hosts[r], places[r]});
  return host_layout(ranks);
}

TEST(HostLayout, OfOneHostIsNone) {
  const HostLayout layout = laid_out({7, 7, 7}, {0, 0, 0});
  EXPECT_EQ(layout.node_count, 0u);
  EXPECT_TRUE(layout.order.empty());
}

TEST(HostLayout, PutsRanksHostByHost) {
  EXPECT_EQ(laid_out({7, 7, 9, 9}, {0, 0, 1, 1}).node_count, 2u);
  EXPECT_TRUE(laid_out({7, 7, 9, 9}, {0, 0, 1, 1}).order.empty());
  EXPECT_EQ(laid_out({7, 9, 7, 9}, {0, 1, 0, 1}).order, (Order{0, 2, 1, 3}));
  EXPECT_EQ(laid_out({7, 7, 9, 9}, {5, 5, 2, 2}).order, (Order{2, 3, 0, 1}));
  EXPECT_EQ(laid_out({7, 8, 9}, {0, 2, 1}).node_count, 3u);
}

TEST(HostLayout, OfUnequalHostsHasAnOrderAndNoNodes) {
  const HostLayout layout = laid_out({7, 9, 7, 7}, {0, 1, 0, 0});
  EXPECT_EQ(layout.node_count, 0u);
  EXPECT_EQ(layout.order, (Order{0, 2, 3, 1}));
}

TEST(HostLayout, KeepsHostsOfOnePlaceApart) {
  EXPECT_EQ(laid_out({7, 9, 7, 9}, {0, 0, 0, 0}).order, (Order{0, 2, 1, 3}));
}

TEST(HostPlaces, FollowFirstRanksOrNames) {
  const std::vector<uint64_t> hosts = {7, 9, 7, 8}, named = {70, 90, 70, 80};
  EXPECT_EQ(places_by_rank(hosts), (Places{0, 1, 0, 2}));
  EXPECT_EQ(places_by_name(hosts, named, std::vector<uint64_t>{80, 90, 70}), (Places{2, 1, 2, 0}));
  // What the order does not know comes last.
  EXPECT_EQ(places_by_name(hosts, named, std::vector<uint64_t>{80, 60}), (Places{2, 3, 2, 0}));
}

// Ranks' places on their hosts, and how many hops between hosts join unlike ones.
std::vector<uint32_t> rails_of(const std::vector<uint64_t>& hosts) {
  std::map<uint64_t, uint32_t> next;
  std::vector<uint32_t> rails;
  for (const uint64_t host : hosts) rails.push_back(next[host]++);
  return rails;
}
uint32_t crossings(const std::vector<uint64_t>& hosts, const Order& ring) {
  const std::vector<uint32_t> rails = rails_of(hosts);
  uint32_t found = 0;
  for (size_t k = 0; k < ring.size(); ++k) {
    const uint16_t rank = ring[k], next = ring[(k + 1) % ring.size()];
    found += hosts[rank] != hosts[next] && rails[rank] != rails[next];
  }
  return found;
}

// Of all ways through hosts with so many ranks each, on from rail `at` and to an end on rail `close`.
uint32_t fewest_crossings(std::span<const uint32_t> counts, uint32_t at, uint32_t close) {
  if (counts.empty()) return at != close;
  uint32_t fewest = UINT32_MAX;
  for (uint32_t in = 0; in < counts[0]; ++in)
    for (uint32_t out = 0; out < counts[0]; ++out)
      if (in != out || counts[0] == 1)
        fewest = std::min(fewest, (at != in) + fewest_crossings(counts.subspan(1), out, close));
  return fewest;
}

Order ring_of(const std::vector<uint64_t>& hosts) {
  const Places places = places_by_rank(hosts);
  Order ring = laid_out(hosts, places).ring_order;
  if (ring.empty())
    for (uint16_t rank = 0; rank < hosts.size(); ++rank) ring.push_back(rank);
  return ring;
}

TEST(RingOrder, LeavesAHostOnTheRailOnWhichItEntersTheNext) {
  EXPECT_EQ(ring_of({7, 7, 9, 9}), (Order{0, 1, 3, 2}));
  EXPECT_EQ(ring_of({7, 9, 7, 9, 7, 9}), (Order{0, 2, 4, 5, 3, 1}));
  EXPECT_EQ(ring_of({1, 1, 1, 1, 2, 2, 2, 2}), (Order{0, 1, 2, 3, 7, 6, 5, 4}));
  EXPECT_EQ(ring_of({1, 1, 1, 1, 2, 2}), (Order{0, 2, 3, 1, 5, 4})) << "on rails that both have";
  EXPECT_EQ(ring_of({1, 2, 3}), (Order{0, 1, 2}));
  EXPECT_TRUE(laid_out({7, 7, 7}, {0, 0, 0}).ring_order.empty());
}

TEST(RingOrder, OfOddHostsCrossesOnceOrTakesAThirdRail) {
  EXPECT_EQ(crossings({1, 1, 2, 2, 3, 3}, ring_of({1, 1, 2, 2, 3, 3})), 1u);
  EXPECT_EQ(crossings({1, 1, 1, 2, 2, 2, 3, 3, 3}, ring_of({1, 1, 1, 2, 2, 2, 3, 3, 3})), 0u);
}

// Host after host, each rank once, and as few crossings as any way has: hosts of 1 to 4 ranks.
TEST(RingOrder, CrossesAsSeldomAsCanBe) {
  for (uint32_t host_count = 2; host_count <= 5; ++host_count)
    for (uint32_t group = 0; group < 1u << 2 * host_count; ++group) {
      std::vector<uint32_t> counts;
      std::vector<uint64_t> hosts;
      for (uint32_t h = 0; h < host_count; ++h) {
        counts.push_back((group >> 2 * h & 3) + 1);
        hosts.insert(hosts.end(), counts.back(), h);
      }
      const Order ring = ring_of(hosts);
      uint32_t changes = 0;
      for (size_t k = 0; k < ring.size(); ++k)
        changes += hosts[ring[k]] != hosts[ring[(k + 1) % ring.size()]];
      EXPECT_EQ(changes, host_count);
      EXPECT_EQ(std::set<uint16_t>(ring.begin(), ring.end()).size(), hosts.size());
      ASSERT_EQ(ring.size(), hosts.size());
      uint32_t fewest = UINT32_MAX;
      for (uint32_t close = 0; close < 4; ++close)
        fewest = std::min(fewest, fewest_crossings(counts, close, close));
      EXPECT_EQ(crossings(hosts, ring), fewest) << testing::PrintToString(counts);
    }
}

class TopologyFile {
 public:
  explicit TopologyFile(const std::string& text)
      : path_(testing::TempDir() + "topology." + std::to_string(getpid())) {
    std::ofstream(path_) << text;
  }
  ~TopologyFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

TEST(HostsByLeaf, PutsThoseOfOneLeafBesideEachOther) {
  const TopologyFile file(R"({"hosts": [
    {"name": "c", "nodes": [], "devices": [{"kind": "nic", "name": "e", "leaf": "two", "up": true},
                                           {"kind": "nic", "name": "f", "leaf": "one", "up": false}]},
    {"name": "a", "devices": [{"kind": "gpu", "leaf": ""}, {"kind": "nic", "leaf": "one", "up": true}]},
    {"name": "d", "devices": [{"leaf": "two"}]},
    {"name": "b", "devices": [{"leaf": "one", "path": ["pci0", "x"], "numa": -1}]}], "rings": []})");
  EXPECT_EQ(hosts_by_leaf(file.path()), (std::vector<std::string>{"a", "b", "c", "d"}));
}

TEST(HostsByLeaf, RefusesWhatIsNoTopology) {
  for (const char* text : {"", "[1]", "{\"hosts\": []}", "{\"hosts\": [{}]}",
                           "{\"hosts\": [{\"name\": \"a\"}, {\"name\": \"a\"}]}"}) {
    const TopologyFile file(text);
    try {
      hosts_by_leaf(file.path());
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_argument);
      EXPECT_NE(std::string(error.what()).find(file.path()), std::string::npos) << error.what();
    }
  }
  try {
    hosts_by_leaf("/no/such/file");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::system);
    EXPECT_NE(error.remedy().find("starling topo --json"), std::string::npos);
  }
}

}  // namespace
}  // namespace starling
