// Goal: what of the verbs link needs no device is right: frames never overlap in the ring and both ends find
// them, an interface finds its RDMA port, and a system without one says so. Method: random frames against a
// model of the ring; a folder like sysfs. The rest runs in a guest (tests/verbs).
// sanitize: address (one thread)
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <random>

#include "link/verbs/frame_ring.h"
#include "link/verbs/gids.h"
#include "link/verbs/place.h"
#include "link/verbs/rails.h"

namespace starling::link::verbs {
namespace {

TEST(FrameRing, FramesNeverOverlapAndBothEndsFindThem) {
  constexpr uint64_t kBytes = 4096, kMost = 1000;
  std::mt19937 random(1);
  FrameQueue sender(kBytes, kMost);
  FrameRing receiver(kBytes, kMost);
  struct Frame {
    uint64_t begin, end, sequence;
  };
  std::deque<Frame> live;
  uint64_t sequence = 0, completed = 0, wrapped = 0, refused = 0;
  for (int step = 0; step < 20000; ++step) {
    const uint64_t bytes = 48 + random() % (kMost - 48 + 1);
    if (sender.has_room(bytes)) {
      const Frame frame{sender.add(sequence, bytes), 0, sequence};
      EXPECT_EQ(receiver.next(), frame.begin);
      receiver.pass(bytes);
      ASSERT_LE(frame.begin + bytes, kBytes);
      for (const Frame& other : live)
        ASSERT_TRUE(frame.begin + bytes <= other.begin || other.end <= frame.begin) << "step " << step;
      wrapped += frame.begin == 0;
      live.push_back({frame.begin, frame.begin + bytes, sequence++});
    } else {
      ++refused;
      ASSERT_FALSE(live.empty());
    }
    // Completions and acknowledgements come in any order to each other.
    if (random() % 2 && completed < sequence) {
      sender.complete_next();
      ++completed;
    }
    const uint64_t acked = live.empty() ? sequence : live.front().sequence + random() % (live.size() + 1);
    sender.free_below(acked);
    while (!live.empty() && live.front().sequence < std::min(acked, completed)) live.pop_front();
    ASSERT_EQ(sender.live(), live.size());
  }
  EXPECT_GT(wrapped, 100u);
  EXPECT_GT(refused, 100u);
}

tcp::Port port_of(const char* name, const char* address) {
  return {name, 1, tcp::parse_address(address).value(), 24};
}

class Gids : public testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() / ("starling_gids_" + std::to_string(getpid()));
    add("mlx5_0", 1, 0, "fe80:0000:0000:0000:0000:0000:0a00:0001", "RoCE v2", "eth0");
    add("mlx5_0", 1, 2, "0000:0000:0000:0000:0000:ffff:0a00:0001", "IB/RoCE v1", "eth0");
    add("mlx5_0", 1, 3, "0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2", "eth0");
    add("mlx5_1", 2, 1, "0000:0000:0000:0000:0000:ffff:0a00:0101", "RoCE v2", "eth1");
    add("mlx5_1", 2, 4, "fd00:0000:0000:0000:0000:0000:0000:0012", "RoCE v2", "eth1");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void add(const std::string& device, int port, int index, const char* gid, const char* type,
           const char* name) {
    const auto folder = root_ / device / "ports" / std::to_string(port);
    for (const char* part : {"gids", "gid_attrs/types", "gid_attrs/ndevs"})
      std::filesystem::create_directories(folder / part);
    std::ofstream(folder / "gids" / std::to_string(index)) << gid << '\n';
    std::ofstream(folder / "gid_attrs/types" / std::to_string(index)) << type << '\n';
    std::ofstream(folder / "gid_attrs/ndevs" / std::to_string(index)) << name << '\n';
  }
  std::filesystem::path root_;
};

TEST_F(Gids, AnInterfaceFindsItsPort) {
  const auto first = find_gid(port_of("eth0", "10.0.0.1"), root_);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->device, "mlx5_0");
  EXPECT_EQ(first->port, 1);
  EXPECT_EQ(first->index, 3);
  const uint8_t bytes[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1};
  EXPECT_EQ(std::memcmp(first->bytes, bytes, sizeof bytes), 0);
  const auto second = find_gid(port_of("eth1", "10.0.1.1"), root_);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->device, "mlx5_1");
  EXPECT_EQ(second->port, 2);
  const auto sixth = find_gid(port_of("eth1", "fd00::12"), root_);
  ASSERT_TRUE(sixth);
  EXPECT_EQ(sixth->index, 4);
}

TEST_F(Gids, OthersHaveNone) {
  EXPECT_FALSE(find_gid(port_of("eth2", "10.0.0.1"), root_)) << "no such interface";
  EXPECT_FALSE(find_gid(port_of("eth0", "10.0.0.2"), root_)) << "not with this address";
  EXPECT_FALSE(find_gid(port_of("eth0", "10.0.0.1"), root_ / "none")) << "no devices";
}

TEST_F(Gids, AreAskedAgain) {
  const tcp::Port port = port_of("eth0", "10.0.0.1");
  const auto gid = find_gid(port, root_);
  ASSERT_TRUE(gid);
  EXPECT_TRUE(is_still(*gid, port, root_));
  EXPECT_FALSE(is_still(*gid, port_of("eth0", "10.0.0.2"), root_)) << "another address";
  Gid moved = *gid;
  ++moved.index;
  EXPECT_FALSE(is_still(moved, port, root_)) << "another place";
  add("mlx5_0", 1, 3, "0000:0000:0000:0000:0000:ffff:0a00:000b", "RoCE v2", "eth0");
  EXPECT_FALSE(is_still(*gid, port_of("eth0", "10.0.0.11"), root_)) << "another address in its place";
}

TEST(Places, AreGoodWithAKeyUntilTheyAreTakenBack) {
  QueuePairs theirs{};
  theirs.device = 1;
  RemotePlace place{0x1000, {{0, 7, 0, 0}}, 5, Placed::kAsOffered};
  EXPECT_TRUE(is_good(place, theirs));
  EXPECT_FALSE(is_good({}, theirs)) << "nowhere";
  theirs.offers_void = 5;
  EXPECT_TRUE(is_good(place, theirs));
  theirs.offers_void = 6;
  EXPECT_FALSE(is_good(place, theirs)) << "taken back";
  place.offer = 0;
  EXPECT_TRUE(is_good(place, theirs)) << "nobody takes slots back";
  for (const uint32_t device : {0u, 2u, kMaxRdmaDevices, 77u}) {
    theirs.device = device;
    EXPECT_FALSE(is_good(place, theirs)) << "no key of device " << device;
  }
}

TEST(Rails, AreThereOrSayWhyNot) {
  tcp::Reactor reactor;
  std::string why;
  const auto rails = open_rails(reactor, {{}, 4096}, [](uint32_t, bool) {}, why);
  EXPECT_EQ(rails == nullptr, !why.empty()) << why;
}

}  // namespace
}  // namespace starling::link::verbs
