// Goal: peers find a lane when what its host has written to the device is there, and not before: they write
// into its connectors as soon as they find it. And the host never waits for that by itself.
// Method: two neighbours' lanes on places that are like GPUs' to the host, one of which is slow.
// sanitize: address (one thread)
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "comm/gpu_like.h"
#include "comm/lane.h"
#include "plan/cache.h"

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

// Submissions of a lane that has no turns yet stay in their order by it.
TEST(PublishedLane, ALaterOperationNeedsNoLessThanAnEarlierOne) {
  Rank a(0), b(1);
  a.open(b);
  EXPECT_TRUE(a.lane->publish());
  PlanCache plans;
  std::vector<float> buffer(1000);
  const auto placed = [&](starling_collective kind) {
    starling_operation call{};
    call.struct_bytes = sizeof call;
    call.kind = kind;
    call.input = call.output = buffer.data();
    call.count = buffer.size();
    call.data_type = STARLING_FLOAT32;
    LoweringContext context{0, 2, kBlocks, &plans};
    context.on_gpu = true;
    Flight flight;
    flight.lowered = lower(context, call);
    Flight& appended = a.lane->append(std::move(flight));
    EXPECT_EQ(a.lane->next_for_device(), &appended);
    a.lane->place(appended, 0);
    return appended.written;
  };
  const uint64_t known = placed(STARLING_ALL_REDUCE);
  const uint64_t fresh = placed(STARLING_BROADCAST);
  EXPECT_LT(known, fresh) << "a plan that nobody has seen yet";
  EXPECT_GE(placed(STARLING_ALL_REDUCE), fresh) << "it would overtake the one before";
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
