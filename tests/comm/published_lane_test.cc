// Goal: peers find a lane when what its host has written to the device is there, and not before: they write
// into its connectors as soon as they find it. And the host never waits for that by itself.
// Method: two neighbours' lanes on places that are like GPUs' to the host, one of which is slow.
// sanitize: address (one thread)
#include <gtest/gtest.h>

#include <memory>

#include "comm/gpu_like.h"
#include "comm/lane.h"

namespace starling {
namespace {

struct Rank {
  explicit Rank(uint32_t number) : rank(number), place(arena), shelf(place) {}

  Peer as_peer_of(Rank& other) {
    auto here = std::make_shared<cpu::PeerArena>(arena.name());
    return {here, other.place.attach(here), nullptr};
  }
  void open(Rank& peer) {
    LaneOptions options{{1, 2}, "x", 0, rank, {}, kBlocks, kGpuSlotBytes, true, false};
    options.members.resize(2);
    options.members[peer.rank] = {peer.as_peer_of(*this), peer.rank};
    lane = std::make_unique<HostLane>(options, arena, place, shelf);
    lane->open(1 << 20, 1);
  }

  const uint32_t rank;
  cpu::Arena arena{{64 << 20}};
  GpuLike place;
  PlanShelf shelf;
  cpu::CpuMachine machine{0, {}, nullptr, nullptr};
  std::unique_ptr<HostLane> lane;
};

TEST(PublishedLane, IsFoundWhenItsConnectorsAreThere) {
  Rank a(0), b(1);
  a.place.is_late = true;
  a.open(b);
  b.open(a);
  EXPECT_TRUE(b.lane->publish());
  EXPECT_FALSE(a.lane->publish());
  EXPECT_FALSE(b.lane->resolve()) << "a peer would write into what is written yet";
  EXPECT_TRUE(a.lane->resolve()) << "the slow one may find the other";
  a.place.is_late = false;
  EXPECT_TRUE(a.lane->publish());
  EXPECT_TRUE(a.lane->publish());
  EXPECT_TRUE(b.lane->resolve());
  EXPECT_TRUE(a.lane->resolved() && b.lane->resolved());
}

TEST(PublishedLane, ThatNobodyFoundMayGo) {
  Rank a(0), b(1);
  a.place.is_late = true;
  a.open(b);
  EXPECT_FALSE(a.lane->publish());
  a.lane->close(a.machine);
  a.lane.reset();
  b.open(a);
  EXPECT_TRUE(b.lane->publish());
  EXPECT_FALSE(b.lane->resolve());
}

TEST(PublishedLane, AFaultIsKnownWhenItHasArrived) {
  Rank a(0), b(1);
  a.open(b);
  EXPECT_TRUE(a.lane->publish());
  a.place.is_late = true;
  a.lane->show_fault(1);
  EXPECT_FALSE(a.lane->fault_is_known());
  a.place.is_late = false;
  EXPECT_TRUE(a.lane->fault_is_known());
}

}  // namespace
}  // namespace starling
