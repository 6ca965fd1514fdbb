// Goal: what lies on a device is never sent by a socket, and never touched by a host. Method: two proxies in
// one process (two_hosts.h), one of which says that its slots are on a device, though all paths are sockets;
// and the memory that stands for a device's in tests (machine/cpu/place.h). Over RDMA: tests/verbs.
#include <gtest/gtest.h>

#include <cstring>

#include "link/two_hosts.h"

namespace starling::link::carry {
namespace {

TEST(DeviceSlots, SocketsAreRefusedInWords) {
  tcp::TimerLengths lengths;
  lengths.give_up_ns = 1'000'000'000;
  TwoHosts hosts(lengths);
  hosts.a.attach(hosts.b);
  hosts.b.attach(hosts.a);
  EXPECT_FALSE(hosts.a.way().reaches_devices(std::chrono::steady_clock::now() + kBound))
      << "there is no RDMA here";
  hosts.a.open_lane(true);
  hosts.b.open_lane();
  ASSERT_TRUE(wait_until([&] { return hosts.a.failed(); })) << "bytes of a device go by sockets";
  const std::string failure = hosts.a.way().failure();
  EXPECT_NE(failure.find("one end has no RDMA there now"), std::string::npos) << failure;
  EXPECT_NE(failure.find("STARLING_GPUDIRECT=never"), std::string::npos) << failure;
  EXPECT_NE(failure.find("lo "), std::string::npos) << "the port: " << failure;
}

TEST(DeviceSlots, WhatStandsForADeviceCannotBeTouched) {
  constexpr uint64_t kBytes = 3 << 12;
  cpu::Arena arena({kArenaBytes});
  cpu::CpuPlace without(arena, {});
  EXPECT_FALSE(without.has_network_slots());
  cpu::CpuPlace place(arena, {}, true);
  ASSERT_TRUE(place.has_network_slots());
  NetworkSlots slots = place.allocate_for_network(kBytes);
  std::memset(slots.memory, 7, kBytes);
  EXPECT_EQ(slots.named[kBytes - 1], std::byte{7}) << "one memory, mapped twice";
  slots.named[1] = std::byte{9};
  place.seal(slots, kBytes);
  EXPECT_EQ(slots.memory[1], std::byte{9});
  EXPECT_DEATH(static_cast<volatile std::byte*>(slots.named)[0], "");  // sanitizers make their own end of it
  place.release_for_network(slots, kBytes);
}

TEST(DeviceSlots, WordsStayWithTheHost) {
  cpu::Arena arena({kArenaBytes});
  cpu::CpuPlace place(arena, {}, true);
  const ChannelShape shape{2, 4, 4096};
  const uint64_t bytes = 2 * Channels::slots_bytes(shape);
  auto slots = std::make_unique<SlotsOnDevice>(place, bytes);
  std::byte* const memory = slots->half(0);
  std::byte* const named = slots->named_half(0);
  slots->seal(std::make_shared<Registration>());
  const Channels channels(place, shape, std::move(slots));
  EXPECT_EQ(channels.slot(channels.arrivals(), 0, 0), memory);
  EXPECT_EQ(channels.named_slot(channels.departures(), 1, 3), named + bytes - 4096);
  EXPECT_EQ(channels.arrivals().credit[1].granted, 4u);
  EXPECT_EQ(channels.departures().inbox[1].posted, 0u);
  EXPECT_LT(channels.bytes(), bytes) << "no slots beside the words";
}

}  // namespace
}  // namespace starling::link::carry
