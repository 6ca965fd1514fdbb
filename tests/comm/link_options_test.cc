// Goal: what the settings say about links is taken as it is said, or refused by name. Method: settings of
// every kind.
// sanitize: address (one thread)
#include "comm/link_options.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "base/error.h"

namespace starling {
namespace {

Settings with(std::initializer_list<const char*> entries) {
  return read_settings(std::span(entries.begin(), entries.size())).settings;
}

std::string refusal(std::initializer_list<const char*> entries) {
  try {
    link_options(with(entries), 1, "");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(LinkOptions, AreWhatTheSettingsSay) {
  const auto plain = link_options(with({}), 4096, "");
  EXPECT_EQ(plain.rdma, link::carry::Rdma::kWherePossible);
  EXPECT_EQ(plain.shadow_bytes, 4096u);
  EXPECT_EQ(plain.family, link::tcp::Family::kAny);
  EXPECT_EQ(plain.queue_pairs.retries, 6);
  EXPECT_TRUE(plain.straight);
  EXPECT_TRUE(plain.cores.empty());
  const auto set =
      link_options(with({"STARLING_LINK=tcp", "STARLING_TCP_FAMILY=ipv6", "STARLING_VERBS_QUEUE_PAIRS=4",
                         "STARLING_VERBS_TIMEOUT=18", "STARLING_VERBS_RETRIES=0",
                         "STARLING_VERBS_TRAFFIC_CLASS=104", "STARLING_VERBS_SERVICE_LEVEL=3",
                         "STARLING_VERBS_STRAIGHT=0", "STARLING_PROBE_S=2", "STARLING_LINK_CORES=0,2-3"}),
                   1, "");
  EXPECT_EQ(set.rdma, link::carry::Rdma::kNever);
  EXPECT_EQ(set.family, link::tcp::Family::kIpv6);
  EXPECT_EQ(set.queue_pairs.count, 4u);
  EXPECT_EQ(set.queue_pairs.timeout, 18);
  EXPECT_EQ(set.queue_pairs.retries, 0);
  EXPECT_EQ(set.queue_pairs.traffic_class, 104);
  EXPECT_EQ(set.queue_pairs.service_level, 3);
  EXPECT_FALSE(set.straight);
  EXPECT_EQ(set.lengths.probe_ns, 2'000'000'000u);
  EXPECT_EQ(set.cores, (std::vector<uint32_t>{0, 2, 3}));
}

TEST(LinkOptions, RefuseByName) {
  EXPECT_NE(refusal({"STARLING_LINK=roce"}).find("STARLING_LINK='roce'"), std::string::npos);
  EXPECT_NE(refusal({"STARLING_LINK_CORES=all"}).find("'all' is no list"), std::string::npos);
  EXPECT_NE(refusal({"STARLING_TCP_FAMILY=6"}).find("STARLING_TCP_FAMILY='6'"), std::string::npos);
  EXPECT_NE(refusal({"STARLING_VERBS_RETRIES=7"}).find("the most is 6"), std::string::npos);
  EXPECT_NE(refusal({"STARLING_VERBS_QUEUE_PAIRS=5"}).find("the most is 4"), std::string::npos);
}

constexpr const char* kTopology = R"({"hosts": [
  {"name": "other", "devices": [{"kind": "gpu", "pci": "0000:03:00.0", "ports": ["eth9"]}]},
  {"name": "here", "devices": [{"kind": "gpu", "pci": "0000:03:00.0", "ports": ["lo", "127.0.0.1"]},
                               {"kind": "gpu", "pci": "0000:05:00.0", "ports": ["starling8", "lo", "starling9"]},
                               {"kind": "gpu", "pci": "0000:06:00.0", "ports": ["starling8", "starling9"]},
                               {"kind": "gpu", "pci": "0000:04:00.0", "path": ["pci0000:00", "0000:00:01.0"]},
                               {"kind": "nic", "name": "eth0", "numa": 1}]}]})";

class ATopologyFile : public testing::Test {
 protected:
  ~ATopologyFile() override { std::remove(path_.c_str()); }
  link::carry::ProxyOptions options(const char* host, const std::string& device,
                                    const char* more = "STARLING_LINK=tcp") {
    const std::string id = std::string("STARLING_HOST_ID=") + host, file = "STARLING_TOPOLOGY=" + path_;
    return link_options(with({id.c_str(), file.c_str(), more}), 1, device);
  }
  const std::string path_ = testing::TempDir() + "ports." + std::to_string(getpid());
};

TEST_F(ATopologyFile, SaysWhichPortsAGpuTakes) {
  std::ofstream(path_) << kTopology;
  EXPECT_EQ(options("here", "0000:03:00.0").interfaces, "lo,127.0.0.1");
  EXPECT_EQ(options("here", "0000:03:00.0", "STARLING_TCP_INTERFACES=eth2").interfaces, "eth2");
  EXPECT_EQ(options("here", "").interfaces, "") << "a rank without a GPU";
  EXPECT_EQ(options("nowhere", "0000:03:00.0").interfaces, "") << "the file lacks the host";
}

// As those are that are down when the rank starts.
TEST_F(ATopologyFile, MayNamePortsThatAreNotThere) {
  std::ofstream(path_) << kTopology;
  EXPECT_EQ(options("here", "0000:05:00.0").interfaces, "lo");
  try {
    options("here", "0000:06:00.0");
    FAIL() << "none of its ports is there";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_NE(std::string(error.what()).find(path_ + " names for GPU 0000:06:00.0 (starling8,starling9)"),
              std::string::npos)
        << error.what();
  }
  EXPECT_EQ(options("here", "0000:06:00.0", "STARLING_TCP_INTERFACES=eth2").interfaces, "eth2");
}

TEST_F(ATopologyFile, SaysWhereDevicesLie) {
  std::ofstream(path_) << kTopology;
  const auto near = options("here", "0000:04:00.0");
  EXPECT_EQ(near.interfaces, "");
  ASSERT_NE(near.told.gpu("0000:04:00.0"), nullptr);
  EXPECT_EQ(near.told.gpu("0000:04:00.0")->path.size(), 2u);
  ASSERT_NE(near.told.port("eth0"), nullptr);
  EXPECT_EQ(near.told.port("eth0")->numa, 1);
  EXPECT_EQ(near.told.port("eth1"), nullptr);
}

// Rank 0 alone may have the file: what orders hosts is told by it. One that says nonsense is refused.
TEST_F(ATopologyFile, MayBeMissingAndMustBeRight) {
  EXPECT_EQ(options("here", "0000:03:00.0").interfaces, "");
  std::ofstream(path_) << "{}";
  EXPECT_THROW(options("here", "0000:03:00.0"), Error);
}

}  // namespace
}  // namespace starling
