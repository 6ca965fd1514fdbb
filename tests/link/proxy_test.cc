// Goal: what hosts and blocks of one rank store reaches a rank of another host as if it were a neighbour, in
// the order that its readers rely on. Method: two proxies in one process, over loopback (two_hosts.h); the
// test's threads are the hosts and blocks, so ThreadSanitizer sees every pairing of stores and loads.
#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"
#include "link/two_hosts.h"
#include "machine/cpu/lane_fault.h"

namespace starling::link::carry {
namespace {

constexpr uint64_t kMessages = 400;

uint32_t bytes_of(uint64_t message) {
  const uint32_t kinds[] = {1, 8, 1000, kShape.slot_bytes};
  return kinds[message * 2654435761 % 4];
}

TEST(Proxies, CarryMessagesBothWays) {
  TwoHosts hosts;
  ASSERT_TRUE(hosts.join());
  auto sends = [](Host& host) {
    for (uint64_t k = 0; k < kMessages; ++k)
      if (!host.send(k, bytes_of(k))) return ADD_FAILURE() << host.way().failure();
  };
  auto receives = [](Host& host) {
    for (uint64_t k = 0; k < kMessages; ++k)
      if (!host.receive(k, bytes_of(k))) return ADD_FAILURE() << host.way().failure();
  };
  std::thread threads[] = {std::thread([&] { sends(hosts.a); }), std::thread([&] { receives(hosts.a); }),
                           std::thread([&] { sends(hosts.b); }), std::thread([&] { receives(hosts.b); })};
  for (std::thread& thread : threads) thread.join();
}

// As for ranks on GPUs: nobody rings for what blocks store.
TEST(Proxies, LookWhereBlocksDoNotRing) {
  constexpr uint64_t kTurns = 200;
  TwoHosts hosts({}, "lo", "lo", true);
  ASSERT_TRUE(hosts.join());
  const auto begin = std::chrono::steady_clock::now();
  for (uint64_t k = 0; k < kTurns; ++k) {
    // Each is an operation of its own; every tenth begins when the threads have gone to sleep, and posts when
    // they look seldom.
    const bool late = k % 10 == 0;
    if (late) std::this_thread::sleep_for(std::chrono::milliseconds(3));
    hosts.a.proxy().begin_work();
    hosts.b.proxy().begin_work();
    if (late) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    ASSERT_TRUE(hosts.a.send(k, bytes_of(k)));
    ASSERT_TRUE(hosts.b.receive(k, bytes_of(k)));
    hosts.a.proxy().end_work();
    hosts.b.proxy().end_work();  // its grant is carried all the same: without it message k + 2 would wait
  }
  // Who slept until a timer ends took a second a turn.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST(Proxies, TellWhatHostsWrite) {
  TwoHosts hosts;
  ASSERT_TRUE(hosts.join());
  Host &a = hosts.a, &b = hosts.b;
  a.post_board(0, 42);
  ASSERT_TRUE(wait_until([&] { return acquired(board_of(b.theirs())[0].position) == 1; }));
  EXPECT_EQ(board_of(b.theirs())[0].count, 42u);
  EXPECT_EQ(acquired(b.theirs()->submitted), 1u);

  // What a host writes into the other's region: here into its shadow, there into the region.
  released(withdrawals_of(a.theirs())[0].met, uint64_t(1));
  cpu::write_fault(a.theirs(), a.shadow(), 0, uint64_t(FaultKind::kAborted), 7, "because");
  released(withdrawals_of(a.theirs())[0].out, uint64_t(1));
  std::atomic_ref<uint64_t>(a.theirs()->closed).fetch_add(1, std::memory_order_acq_rel);
  a.ring();
  ASSERT_TRUE(wait_until([&] { return acquired(b.lane()->closed) == 1; }));
  EXPECT_EQ(acquired(b.lane()->fault), uint64_t(FaultKind::kAborted));
  EXPECT_EQ(b.lane()->other_note.sequence, 7u);
  EXPECT_STREQ(b.lane()->other_note.text, "because");
  EXPECT_EQ(acquired(withdrawals_of(b.lane())[0].met), 1u);
  EXPECT_EQ(acquired(withdrawals_of(b.lane())[0].out), 1u);

  a.way().unpublish(a.number());
  a.way().forget(a.number());
  EXPECT_TRUE(wait_until([&] { return cpu::PeerArena(b.way().shadow_name()).find_lane(1, 2) == nullptr; }));
}

TEST(Proxies, PublishNothingOfRanksThatDisagree) {
  TwoHosts hosts;
  ASSERT_TRUE(hosts.join());
  Host &a = hosts.a, &b = hosts.b;
  b.post_board(0, 2);
  a.post_board(0, 1);
  ASSERT_TRUE(a.send(0, 8));
  ASSERT_TRUE(wait_until([&] { return b.proxy().take_mismatch(); }));
  EXPECT_FALSE(b.proxy().take_mismatch()) << "once each time";
  // What comes behind the message shows that the message has come, too.
  released(withdrawals_of(a.theirs())[0].met, uint64_t(1));
  a.ring();
  ASSERT_TRUE(wait_until([&] { return acquired(withdrawals_of(b.lane())[0].met) == 1; }));
  EXPECT_EQ(b.posted(), 0u);
}

bool has_ipv6_loopback() {
  try {
    return !tcp::usable_ports("::1").empty();
  } catch (const Error&) {
    return false;
  }
}

TEST(Proxies, GoOverIpv6AndSayWhereFamiliesDiffer) {
  if (!has_ipv6_loopback()) GTEST_SKIP() << "loopback has no IPv6 address here";
  {
    TwoHosts hosts({}, "::1,::1", "::1,::1");
    ASSERT_TRUE(hosts.join()) << hosts.a.way().failure();
    for (uint64_t k = 0; k < 20; ++k) {
      ASSERT_TRUE(hosts.a.send(k, bytes_of(k)));
      ASSERT_TRUE(hosts.b.receive(k, bytes_of(k)));
    }
    EXPECT_NE(hosts.a.proxy().ports().find("lo=::1/128:"), std::string::npos) << hosts.a.proxy().ports();
  }
  TwoHosts hosts({}, "127.0.0.1", "::1");
  try {
    hosts.join();
    FAIL() << "there is no path between two families";
  } catch (const Error& error) {
    const std::string text = error.what();
    for (const char* part : {"lo=127.0.0.1/8:", "rank 1's (lo=::1/128:", "STARLING_TCP_FAMILY"})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

TEST(Proxies, SayThatTheyLeaveAfterAllElse) {
  TwoHosts hosts;
  ASSERT_TRUE(hosts.join());
  hosts.a.post_board(0, 1);
  hosts.a.leave();
  ASSERT_TRUE(wait_until([&] { return acquired(hosts.b.shadow()->closed) != 0; }));
  EXPECT_EQ(hosts.b.shadow()->closed, 1u);
  EXPECT_EQ(acquired(board_of(hosts.b.theirs())[0].position), 1u);
  EXPECT_EQ(hosts.b.way().failure(), "");
}

}  // namespace
}  // namespace starling::link::carry
