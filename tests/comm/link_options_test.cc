// Goal: what the settings say about links is taken as it is said, or refused by name. Method: settings of
// every kind.
#include "comm/link_options.h"

#include <gtest/gtest.h>

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
  EXPECT_TRUE(plain.cores.empty());
  const auto set = link_options(
      with({"STARLING_LINK=tcp", "STARLING_TCP_FAMILY=ipv6", "STARLING_VERBS_QUEUE_PAIRS=4",
            "STARLING_VERBS_TIMEOUT=18", "STARLING_VERBS_RETRIES=0", "STARLING_VERBS_TRAFFIC_CLASS=104",
            "STARLING_VERBS_SERVICE_LEVEL=3", "STARLING_PROBE_S=2", "STARLING_LINK_CORES=0,2-3"}),
      1, "");
  EXPECT_EQ(set.rdma, link::carry::Rdma::kNever);
  EXPECT_EQ(set.family, link::tcp::Family::kIpv6);
  EXPECT_EQ(set.queue_pairs.count, 4u);
  EXPECT_EQ(set.queue_pairs.timeout, 18);
  EXPECT_EQ(set.queue_pairs.retries, 0);
  EXPECT_EQ(set.queue_pairs.traffic_class, 104);
  EXPECT_EQ(set.queue_pairs.service_level, 3);
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

}  // namespace
}  // namespace starling
