// Goal: every rank lays out the hosts of a group alike, in the order of leaf switches where a file names
// them. Method: groups of few ranks by hand; files as `starling topo --json` writes them, and wrong ones.
#include "comm/host_layout.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

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
