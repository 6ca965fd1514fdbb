// Goal: what flows over sockets do beside what every link does (conformance_test.cc): they start without a
// path that cannot be connected, record what landed, and pair ports. Method: the suite's rig, over loopback,
// through wires that the test cuts.
#include <gtest/gtest.h>

#include "link/tcp_rig.h"
#include "monitor/path_ring.h"

namespace starling::link::conformance {
namespace {

template <class Test>
void checked(Test&& test) {
  try {
    test();
  } catch (const Failure& failure) {
    FAIL() << failure.why;
  }
}

TEST(Tcp, StartsWithoutAPathThatCannotBeConnected) {
  checked([] {
    TcpRig rig({}, bit(0));
    rig.deliver(20);
    rig.heal(0);
    rig.run_until("the first path", [&] { return rig.uses(1) && rig.sender(0)->epoch > 1; });
    rig.deliver(20);
  });
}

// What watchers see of a path: every transfer once, whichever path it went by in the end.
TEST(Tcp, RecordsWhatLanded) {
  checked([] {
    PathRing rings[2] = {};
    TcpRig rig({.policy = Policy::kStriping, .patient = true}, 0, {&rings[0], &rings[1]});
    rig.deliver(200);
    EXPECT_EQ(rings[0].written + rings[1].written, 200u);
    EXPECT_GT(rings[0].written, 0u);
    EXPECT_GT(rings[1].written, 0u);
    uint64_t bytes = 0;
    for (uint64_t k = 0; k < 200; ++k) bytes += sizeof(uint64_t) + rig.traffic[0].bytes(k);
    EXPECT_EQ(rings[0].bytes + rings[1].bytes, bytes);
    for (const PathRing& ring : rings) {
      EXPECT_EQ(ring.left_bytes, 0u);
      EXPECT_EQ(ring.waiting_since_ns, 0u);
      monitor::PathReader reader(ring);
      uint64_t last = 0;
      for (TransferRecord record; reader.next(record); last = record.completed_ns) {
        EXPECT_LE(record.posted_ns, record.completed_ns);
        EXPECT_LE(last, record.completed_ns);
      }
    }
    rig.add(100);
    rig.fail(0, kCut);
    rig.run_until("the other path", [&] { return rig.uses(2); });
    rig.run_until("delivery", [&] { return rig.all_there(); });
    EXPECT_EQ(rings[0].left_bytes, 0u);
    EXPECT_GE(rings[0].closed, 1u);
    EXPECT_LE(rings[0].written + rings[1].written, 300u) << "none twice";
  });
}

}  // namespace
}  // namespace starling::link::conformance

namespace starling::link::tcp {
namespace {

TEST(Ports, PairsThoseOfOneNetwork) {
  const Port a{"a", 1, 0x0a000001, 24}, b{"b", 2, 0x0a000101, 24};
  const Port c{"c", 1, 0x0a000102, 24}, d{"d", 2, 0x0a000002, 24}, e{"e", 3, 0x0b000002, 24};
  const auto pairs = pair_ports({a, b}, {c, d, e});
  ASSERT_EQ(pairs.size(), 2u);
  EXPECT_EQ(pairs[0].second.name, "d");
  EXPECT_EQ(pairs[1].second.name, "c");
  EXPECT_EQ(pair_ports({a, b}, {e}).front().first.name, "a");
  std::vector<Port> ports{a, b};
  ports[1].number = 4711;
  EXPECT_EQ(ports_text(ports), "a=10.0.0.1/24:0,b=10.0.1.1/24:4711");
  EXPECT_EQ(ports_text(parse_ports(ports_text(ports))), ports_text(ports));
  EXPECT_TRUE(parse_ports("nonsense").empty());
}

}  // namespace
}  // namespace starling::link::tcp
