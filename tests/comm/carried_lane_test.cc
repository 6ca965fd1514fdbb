// Goal: a lane that spans hosts is on a GPU what its blocks expect: ends to other hosts lead to memory that
// the host shares with them, ends to neighbours to the GPU's, locked memory is bounded, and what was sent
// arrives though the sender's lane is closed. Method: lanes on a place that is like a GPU's to the host, two
// proxies that look because nobody rings, and the device's own code for connectors, run by the test.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "comm/gpu_like.h"
#include "comm/lane.h"
#include "device/connector.h"
#include "link/carry/proxy.h"

namespace starling {
namespace {

template <class Done>
bool wait_until(Done&& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

// One rank with its lane. Destroyed in a context's order: lane, proxy, place.
struct Rank {
  explicit Rank(uint32_t number) : rank(number), place(arena), shelf(place) {
    link::carry::ProxyOptions options;
    options.interfaces = "lo";
    options.shadow_bytes = 64 << 20;
    options.polls = true;
    proxy = std::make_unique<link::carry::Proxy>(arena, options);
  }

  Peer remote(Rank& other) {
    link::carry::RemoteRank far;
    far.arena = other.arena.name();
    far.rank = other.rank;
    link::carry::Way& way = proxy->attach(far, other.proxy->ports());
    return {std::make_shared<cpu::PeerArena>(way.shadow_name()), nullptr, &way};
  }
  Peer neighbour(Rank& other) {
    auto there = std::make_shared<cpu::PeerArena>(other.arena.name());
    return {there, place.attach(there), nullptr};
  }
  void open(std::vector<Peer> peers, uint64_t size_class_bytes = 1 << 20) {
    LaneOptions options{{1, 2}, "x", 0, rank, {}, kBlocks, kGpuSlotBytes, true, false};
    for (uint32_t r = 0; r < peers.size(); ++r) options.members.push_back({peers[r], r});
    lane = std::make_unique<HostLane>(options, arena, place, shelf);
    lane->open(size_class_bytes, 1);
    lane->publish();
    proxy->begin_work();
  }
  bool meet() {
    return wait_until([&] {
      lane->resolve();
      return lane->resolved();
    });
  }

  SendEnd& send_end(uint32_t to, uint32_t channel) {
    return lane->device()->sends[to * lane->device()->channel_count + channel];
  }
  ReceiveEnd& receive_end(uint32_t from, uint32_t channel) {
    return lane->device()->receives[from * lane->device()->channel_count + channel];
  }
  // What a sending block does. False: no grant in time.
  bool send(uint32_t to, uint32_t channel, uint8_t value, uint32_t bytes) {
    SendEnd& end = send_end(to, channel);
    if (!wait_until([&] { return device::can_send(machine, *lane->device(), end); })) return false;
    std::memset(device::next_send_slot(*lane->device(), end), value, bytes);
    device::measure(end, bytes);
    device::post(machine, end);
    return true;
  }
  // What a receiving block does. False: nothing in time, or something else.
  bool receive(uint32_t from, uint32_t channel, uint8_t value, uint32_t bytes) {
    ReceiveEnd& end = receive_end(from, channel);
    if (!wait_until([&] { return device::can_receive(machine, *lane->device(), end); })) return false;
    const std::byte* message = device::next_receive_slot(*lane->device(), end, nullptr);
    bool right = true;
    for (uint32_t at = 0; at < bytes; ++at) right &= message[at] == std::byte(value);
    SlotPool none{};
    device::consume(machine, *lane->device(), end, none);
    return right;
  }

  const uint32_t rank;
  cpu::Arena arena{{64 << 20}};
  GpuLike place;
  PlanShelf shelf;
  cpu::CpuMachine machine{0, {}, nullptr, nullptr};
  std::unique_ptr<link::carry::Proxy> proxy;
  std::unique_ptr<HostLane> lane;
};

TEST(CarriedLane, OfAGpuLiesInSharedMemory) {
  Rank a(0), b(1);
  const uint64_t before = a.place.shared_bytes;
  a.open({{}, a.remote(b)});
  b.open({b.remote(a), {}});
  EXPECT_EQ(a.place.exported_bytes, 0u) << "no neighbour, no connectors in the GPU's memory";
  EXPECT_EQ(a.lane->shared()->channel_count, 8u) << "not one a block";
  EXPECT_EQ(a.lane->shared()->slot_bytes, 1u << 16);
  EXPECT_LT(a.place.shared_bytes - before, 10u << 20);
  ASSERT_TRUE(a.meet() && b.meet());
  const uint32_t sizes[] = {1, 4000, 1 << 16};
  for (uint32_t k = 0; k < 60; ++k)
    for (uint32_t channel : {0u, 7u}) {
      ASSERT_TRUE(a.send(1, channel, uint8_t(k), sizes[k % 3]));
      ASSERT_TRUE(b.receive(0, channel, uint8_t(k), sizes[k % 3])) << k;
      ASSERT_TRUE(b.send(0, channel, uint8_t(k + 100), sizes[k % 3]));
      ASSERT_TRUE(a.receive(1, channel, uint8_t(k + 100), sizes[k % 3])) << k;
    }
  // Batches that another thread sends, both ways at a time.
  for (uint8_t k = 0; k < 30; ++k) {
    for (uint32_t m = 0; m < 32; ++m) {
      ASSERT_TRUE(a.send(1, m % 8, uint8_t(k + m), 1 << 16));
      ASSERT_TRUE(b.send(0, m % 8, uint8_t(k - m), 1 << 16));
    }
    for (uint32_t m = 0; m < 32; ++m) {
      ASSERT_TRUE(b.receive(0, m % 8, uint8_t(k + m), 1 << 16));
      ASSERT_TRUE(a.receive(1, m % 8, uint8_t(k - m), 1 << 16));
    }
  }
  EXPECT_EQ(a.send_end(1, 0).doorbell, nullptr) << "blocks of a GPU ring nobody";
}

TEST(CarriedLane, HasNeighboursInTheGpusMemory) {
  Rank a(0), b(1), c(2);
  a.open({{}, a.neighbour(b), a.remote(c)});
  b.open({b.neighbour(a), {}, b.remote(c)});
  c.open({c.remote(a), c.remote(b), {}});
  EXPECT_GT(a.place.exported_bytes, 0u);
  EXPECT_EQ(c.place.exported_bytes, 0u);
  ASSERT_TRUE(a.meet() && b.meet() && c.meet());
  Rank* const ranks[] = {&a, &b, &c};
  for (uint32_t k = 0; k < 20; ++k)
    for (Rank* from : ranks)
      for (Rank* to : ranks) {
        if (from == to) continue;
        const auto value = uint8_t(k * 9 + from->rank * 3 + to->rank);
        ASSERT_TRUE(from->send(to->rank, k % 8, value, 1 << 16));
        ASSERT_TRUE(to->receive(from->rank, k % 8, value, 1 << 16)) << from->rank << " to " << to->rank;
      }
}

// It may be destroyed, and its memory used for another lane, before its peer has looked for it: what it sent
// keeps its slots, and a peer that comes late finds its region.
TEST(CarriedLane, IsFoundByWhoComesLate) {
  Rank a(0), b(1);
  a.open({{}, a.remote(b)}, 1 << 10);
  b.open({b.remote(a), {}}, 1 << 10);
  ASSERT_TRUE(a.meet());
  for (uint8_t k = 0; k < kMaxCredits; ++k) ASSERT_TRUE(a.send(1, 3, k, 4000));
  a.lane->close(a.machine);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // all that was said has come
  ASSERT_TRUE(b.meet());
  for (uint8_t k = 0; k < kMaxCredits; ++k) ASSERT_TRUE(b.receive(0, 3, k, 4000)) << int(k);
  b.lane->close(b.machine);
  EXPECT_TRUE(wait_until([&] { return a.lane->abandoned(); }));
  const uint64_t held = a.place.shared_bytes;
  a.lane.reset();
  EXPECT_TRUE(wait_until([&] { return a.place.shared_bytes < held / 4; })) << "channels are given back";
}

}  // namespace
}  // namespace starling
